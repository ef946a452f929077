//! One line: a JSON object whose last member is the CRC of everything before it.
use crate::record::error::StorageError;

/// Longest line that is written or read, LF included: a run row with a million gaps fits, an endless line ends here.
pub const MAX_LINE: usize = 16 << 20;

/// `,"crc":"` + 8 hex digits + `"}`
const SEAL: usize = 18;

/// Ends the JSON object in `line` with its CRC and LF: CRC-32 (IEEE) over the raw bytes before `,"crc"`, 8 lower-case hex digits.
pub(super) fn seal(line: &mut Vec<u8>) {
    debug_assert_eq!(line.last(), Some(&b'}'));
    line.pop();
    let crc = crc32fast::hash(line);
    line.extend_from_slice(format!(",\"crc\":\"{crc:08x}\"}}\n").as_bytes());
}

/// Whether `line` (without LF) is whole; otherwise what is wrong. Exactly one spelling of the seal is accepted, so that a flipped
/// bit in the seal is seen as surely as one before it.
pub(super) fn check(line: &[u8]) -> Result<(), String> {
    let Some(at) = line.len().checked_sub(SEAL) else {
        return Err("too short for a crc".into());
    };
    let (body, seal) = line.split_at(at);
    let crc = crc32fast::hash(body);
    if seal == format!(",\"crc\":\"{crc:08x}\"}}").as_bytes() {
        Ok(())
    } else if seal.starts_with(b",\"crc\":\"") && seal.ends_with(b"\"}") {
        let found = String::from_utf8_lossy(&seal[8..16]);
        Err(format!("its crc is {}, its bytes give {crc:08x}", printable(&found)))
    } else {
        Err("crc is not its last member".into())
    }
}

/// A sealed line of `log.jsonl`: `seq` and `kind` in front of the members of `body`, a JSON object.
pub(super) fn numbered(seq: u64, kind: &str, body: &[u8]) -> Vec<u8> {
    let mut line = Vec::with_capacity(body.len() + 64);
    line.extend_from_slice(format!("{{\"seq\":{seq},\"kind\":\"{kind}\"").as_bytes());
    if body.len() > 2 {
        line.push(b',');
        line.extend_from_slice(&body[1..]);
    } else {
        line.push(b'}');
    }
    seal(&mut line);
    line
}

/// Refuses a line that no reader would accept.
pub(super) fn bounded(path: &std::path::Path, line: &[u8]) -> Result<(), StorageError> {
    if line.len() > MAX_LINE {
        return Err(StorageError::LineTooLong { path: path.display().to_string(), bytes: line.len(), limit: MAX_LINE });
    }
    Ok(())
}

/// Text of a file as it may stand in a message: control characters escaped, long text cut.
pub(super) fn printable(text: &str) -> String {
    let mut out: String = text.chars().take(200).flat_map(char::escape_debug).collect();
    if text.chars().nth(200).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crc_of_the_check_string_is_the_published_one() {
        // CRC-32/ISO-HDLC of "123456789" is cbf43926 in every catalogue of CRCs.
        let mut line = b"123456789}".to_vec();
        seal(&mut line);
        assert_eq!(line, b"123456789,\"crc\":\"cbf43926\"}\n");
    }

    #[test]
    fn every_flipped_bit_of_a_line_is_seen() {
        let line = numbered(7, "event", br#"{"t_ns":1,"what":"warning"}"#);
        let line = &line[..line.len() - 1];
        assert_eq!(check(line), Ok(()));
        for bit in 0..line.len() * 8 {
            let mut bad = line.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(check(&bad).is_err(), "bit {bit}");
        }
        for end in 0..line.len() {
            assert!(check(&line[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn an_empty_body_still_makes_a_line() {
        assert!(numbered(0, "close", b"{}").starts_with(br#"{"seq":0,"kind":"close","crc":""#));
    }
}
