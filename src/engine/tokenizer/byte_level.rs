//! GPT-2's letters for bytes: each of the 256 bytes has a printable character, so that every word is text.

/// Character of a byte: itself where it prints and is no blank, else the next unused one from `U+0100` on.
fn letter(byte: u8) -> char {
    match byte {
        b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => char::from(byte),
        0..=0x20 => shifted(u32::from(byte)),
        0x7F..=0xA0 => shifted(u32::from(byte) - 0x7F + 0x21),
        0xAD => shifted(0x43),
    }
}

fn shifted(index: u32) -> char {
    char::from_u32(0x100 + index).expect("U+0100 to U+0143 are characters")
}

/// From character to byte.
pub(super) struct Letters([Option<u8>; 0x144]);

impl Letters {
    pub(super) fn new() -> Self {
        let mut table = [None; 0x144];
        for byte in 0..=u8::MAX {
            table[letter(byte) as usize] = Some(byte);
        }
        Self(table)
    }

    /// Appends the bytes of a word; a character that stands for no byte gives its own UTF-8.
    pub(super) fn decode(&self, word: &str, out: &mut Vec<u8>) {
        for character in word.chars() {
            match self.0.get(character as usize).copied().flatten() {
                Some(byte) => out.push(byte),
                None => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_256_letters_differ_and_are_those_of_the_tokenizers_crate() {
        use tokenizers::pre_tokenizers::byte_level::ByteLevel;
        let letters: std::collections::HashSet<char> = (0..=255).map(letter).collect();
        assert_eq!(letters.len(), 256);
        assert_eq!(letters, ByteLevel::alphabet().into_iter().collect());
        // From GPT-2's table: blank, newline, soft hyphen, delete.
        assert_eq!([b' ', b'\n', 0xAD, 0x7F].map(letter), ['Ġ', 'Ċ', 'Ń', 'ġ']);
    }

    #[test]
    fn a_word_decodes_to_its_bytes() {
        let mut out = Vec::new();
        Letters::new().decode("Ġä¸Ń中", &mut out);
        assert_eq!(out, " 中中".as_bytes());
    }
}
