//! Throughput of the endpoint's reading path on streams of the usual shapes, in reads as a socket gives them.
//!
//! `cargo bench --bench sse`; the aim is 50 MB/s a core or more, JSON included.
use std::ops::ControlFlow;

use divan::Bencher;
use divan::counter::BytesCount;
use inferlab::target::endpoint::{BodyEnd, MAX_EVENT_BYTES, SseParser, StreamReader};
use inferlab::units::TimestampNs;

fn main() {
    divan::main();
}

/// 1,000 chunks as vLLM writes them.
fn short_chunks() -> Vec<u8> {
    let mut bytes = Vec::new();
    for n in 0..1000 {
        bytes.extend_from_slice(
            format!(
                r#"data: {{"id":"chatcmpl-8a1c","object":"chat.completion.chunk","created":1764547200,"model":"lab-model","choices":[{{"index":0,"delta":{{"content":" word{n}"}},"logprobs":null,"finish_reason":null}}]}}"#
            )
            .as_bytes(),
        );
        bytes.extend_from_slice(b"\n\n");
    }
    bytes.extend_from_slice(b"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n");
    bytes
}

/// 1,000 chunks as llama.cpp writes them with `timings_per_token`.
fn timed_chunks() -> Vec<u8> {
    let mut bytes = Vec::new();
    for n in 1..=1000 {
        bytes.extend_from_slice(
            format!(
                r#"data: {{"choices":[{{"finish_reason":null,"index":0,"delta":{{"content":" w\"{n}"}}}}],"created":1796104129,"id":"chatcmpl-h6x","model":"smollm2-135m","system_fingerprint":"b1-0c1e570","object":"chat.completion.chunk","timings":{{"cache_n":45,"prompt_n":1,"prompt_ms":6.03,"prompt_per_token_ms":6.03,"prompt_per_second":165.83747927031507,"predicted_n":{n},"predicted_ms":63.972,"predicted_per_token_ms":5.815636363636364,"predicted_per_second":171.95022822484836}}}}"#
            )
            .as_bytes(),
        );
        bytes.extend_from_slice(b"\n\n");
    }
    bytes.extend_from_slice(b"data: [DONE]\n\n");
    bytes
}

/// Bytes of one read: one event of a busy server, a packet, a full buffer.
const READS: [usize; 3] = [200, 1448, 65536];

fn whole(bencher: Bencher<'_, '_>, bytes: &[u8], read: usize) {
    bencher.counter(BytesCount::of_slice(bytes)).bench_local(|| {
        let mut reader = StreamReader::new();
        for part in bytes.chunks(read) {
            divan::black_box(reader.push(part, TimestampNs(1)));
        }
        divan::black_box(reader.close(BodyEnd::Closed))
    });
}

#[divan::bench(args = READS)]
fn vllm_chunks(bencher: Bencher<'_, '_>, read: usize) {
    whole(bencher, &short_chunks(), read);
}

#[divan::bench(args = READS)]
fn llama_cpp_timed_chunks(bencher: Bencher<'_, '_>, read: usize) {
    whole(bencher, &timed_chunks(), read);
}

#[divan::bench(args = READS)]
fn framing_alone(bencher: Bencher<'_, '_>, read: usize) {
    let bytes = short_chunks();
    bencher.counter(BytesCount::of_slice(&bytes)).bench_local(|| {
        let mut parser = SseParser::new(MAX_EVENT_BYTES);
        let mut events = 0_u32;
        for part in bytes.chunks(read) {
            let _ = parser.push(part, |item| {
                events += u32::from(matches!(item, inferlab::target::endpoint::SseItem::Event { .. }));
                ControlFlow::Continue(())
            });
        }
        events
    });
}
