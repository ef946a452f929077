"""What inferlab says of a loopback server against what the server wrote: errors of TTFT and TPOT, token counts, outcomes, cost.

    cargo build --release
    rustc -O --edition 2024 benches/peers/stub.rs -o /tmp/stub
    python3 benches/peers/truth.py target/release/inferlab /tmp/stub            # errors and cost
    python3 benches/peers/truth.py target/release/inferlab /tmp/stub quick      # the errors at 1 and 64 streams only

Client and server share the machine's cores; the server's own lateness is inside the truth, so the errors are the client's share.
Truth of TTFT: the write of the first tokens minus the moment at which the client says it sent (same clock). Truth of TPOT:
(last write - first write) / (tokens - tokens of the first write). Standard library only.
"""
import glob, json, os, resource, shutil, statistics, subprocess, sys, tempfile, time

lab, stub = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
quick = len(sys.argv) > 3 and sys.argv[3] == "quick"
folder = tempfile.mkdtemp(prefix="truth-")


def suite(url, model, concurrency, requests, tokens):
    return f"""schema: 1
name: truth
question: Does the client say what the server did?
seed: 11
target:
  endpoint: {{url: "{url}", model: "{model}", dialect: openai}}
repeats: 1
limits: {{max_failure_rate: 1.0}}
text: hash
workloads:
  - decode_scaling:
      load: {{closed: {{concurrency: {concurrency}}}}}
      prompt_tokens: 64
      completion_tokens: {tokens}
      requests_per_lane: {requests}
      warmup_per_lane: 0
"""


def run(options, concurrency, requests, tokens=64):
    """Rows by seed, truth by seed, and what the client cost."""
    truth = os.path.join(folder, "truth.jsonl")
    server = subprocess.Popen([stub, truth], stdout=subprocess.PIPE, text=True)
    try:
        url = server.stdout.readline().strip()
        with open(os.path.join(folder, "suite.yaml"), "w") as file:
            file.write(suite(url, "stub?" + options, concurrency, requests, tokens))
        shutil.rmtree(os.path.join(folder, "runs"), ignore_errors=True)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.monotonic_ns()
        done = subprocess.run([lab, "run", "suite.yaml", "--json", "--no-report"], cwd=folder, capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    finally:
        server.kill()
        server.wait()
    log = glob.glob(os.path.join(folder, "runs", "*", "log.jsonl"))
    if not log:
        sys.exit(done.stderr)
    lines = [json.loads(line) for line in open(log[0])]
    anchor = next(line["anchor_ns"] for line in lines if line["kind"] == "open")
    rows = {line["seed"]: line for line in lines if line["kind"] == "request"}
    cost = {
        "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "first_ms": (anchor + min(row["sent_ns"] for row in rows.values()) - started) / 1e6,
        "rss_mb": max((line["rss_bytes"] for line in lines if line["kind"] == "hardware" and line.get("rss_bytes")), default=0) / 1e6,
        "exit": done.returncode,
    }
    return anchor, rows, {line["seed"]: line for line in map(json.loads, open(truth))}, cost


def errors(anchor, rows, truth):
    """Mean TTFT error in ms, mean TPOT error in %, rows with a wrong token count."""
    ttft, tpot, wrong = [], [], 0
    for seed, row in rows.items():
        true = truth[seed]
        writes, tokens = true["writes_ns"], true["tokens"]
        if not writes or row["first_token_ns"] is None:
            continue
        ttft.append((anchor + row["first_token_ns"] - writes[0]) / 1e6)
        n = row["usage_completion_tokens"]
        wrong += n is not None and n != sum(tokens)
        first = row["first_chunk_tokens"] or 1
        if n and n > first and sum(tokens) > tokens[0]:
            said = (row["last_token_ns"] - row["first_token_ns"]) / (n - first)
            tpot.append(100 * (said * (sum(tokens) - tokens[0]) / (writes[-1] - writes[0]) - 1))
    return statistics.mean(ttft), statistics.mean(tpot) if tpot else None, wrong


print(f"load average {os.getloadavg()[0]:.2f}")
print("streams  mode        TTFT error ms (mean)  TPOT error %  wrong counts  outcomes  exit")
for concurrency, requests in [(1, 8), (64, 2), (512, 2)][: 2 if quick else 3]:
    for mode in ["plain", "role", "four", "reasoning", "empty", "usage", "malformed", "cut", "error"]:
        anchor, rows, truth, cost = run(f"mode={mode}&ttft_ms=50&itl_ms=20", concurrency, requests)
        ttft, tpot, wrong = errors(anchor, rows, truth)
        outcomes = {}
        for row in rows.values():
            outcomes[row["outcome"]] = outcomes.get(row["outcome"], 0) + 1
        tpot = "–" if tpot is None else f"{tpot:+.2f}"
        print(f"{concurrency:7}  {mode:10}  {ttft:+20.2f}  {tpot:>12}  {wrong:12}  {outcomes}  {cost['exit']}", flush=True)

if not quick:
    print("\ncost at full speed (no pauses between events), 128 events a request")
    for concurrency, requests in [(64, 16), (64, 32), (512, 4)]:
        anchor, rows, truth, cost = run("mode=plain&ttft_ms=0&itl_ms=0", concurrency, requests, 128)
        n = len(rows)
        begun = min(row["sent_ns"] for row in rows.values())
        seconds = (max(row["end_ns"] for row in rows.values()) - begun) / 1e9
        print(
            f"{concurrency} streams, {n} requests: {n * 128 / seconds:,.0f} events/s, CPU {1000 * cost['cpu_s'] / n:.2f} s per 1,000 requests "
            f"(start included), peak RSS {cost['rss_mb']:.1f} MB, first request {cost['first_ms']:.0f} ms after exec, "
            f"outcomes ok {sum(row['outcome'] == 'ok' for row in rows.values())}"
        )
shutil.rmtree(folder)
