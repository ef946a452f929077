//! The faces figures are set in: Roboto from the binary, and a system CJK face where one is installed.
use std::path::PathBuf;
use std::sync::OnceLock;

use ab_glyph::{Font, FontRef, GlyphId};

/// Family list of the SVG text: the browser takes the first it has, and falls back by character.
pub const FAMILIES: &str =
    "Roboto, 'Helvetica Neue', Arial, 'Noto Sans', 'Noto Sans CJK SC', 'PingFang SC', 'Microsoft YaHei', sans-serif";

static REGULAR: &[u8] = include_bytes!("fonts/Roboto-Regular.ttf");
static BOLD: &[u8] = include_bytes!("fonts/Roboto-Bold.ttf");

/// A file in `INFERLAB_CJK_FONT` comes first, then where distributions and systems keep a CJK face.
const CJK_PATHS: &[&str] = &[
    "/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc",
    "/usr/share/fonts/noto-cjk/NotoSansCJK-Regular.ttc",
    "/usr/share/fonts/google-noto-cjk/NotoSansCJK-Regular.ttc",
    "/usr/share/fonts/google-noto-sans-cjk-fonts/NotoSansCJK-Regular.ttc",
    "/usr/share/fonts/google-noto-sans-cjk-vf-fonts/NotoSansCJK-VF.ttc",
    "/usr/share/fonts/truetype/noto/NotoSansCJK-Regular.ttc",
    "/usr/share/fonts/opentype/source-han-sans/SourceHanSansSC-Regular.otf",
    "/usr/share/fonts/truetype/wqy/wqy-zenhei.ttc",
    "/usr/share/fonts/truetype/wqy/wqy-microhei.ttc",
    "/usr/share/fonts/wenquanyi/wqy-zenhei/wqy-zenhei.ttc",
    "/usr/share/fonts/truetype/droid/DroidSansFallbackFull.ttf",
    "/usr/share/fonts/truetype/arphic/uming.ttc",
    "/System/Library/Fonts/Hiragino Sans GB.ttc",
    "/System/Library/Fonts/STHeiti Light.ttc",
    "/System/Library/Fonts/PingFang.ttc",
    "/Library/Fonts/Arial Unicode.ttf",
    "C:\\Windows\\Fonts\\msyh.ttc",
    "C:\\Windows\\Fonts\\simhei.ttf",
    "C:\\Windows\\Fonts\\simsun.ttc",
];

/// Larger files are not fonts we know.
const LARGEST_FONT_BYTES: u64 = 64 << 20;

fn embedded(bold: bool) -> &'static FontRef<'static> {
    static FACES: OnceLock<[FontRef<'static>; 2]> = OnceLock::new();
    let faces = FACES.get_or_init(|| {
        [REGULAR, BOLD].map(|bytes| FontRef::try_from_slice(bytes).expect("the embedded font is a TrueType font"))
    });
    &faces[usize::from(bold)]
}

/// The system CJK face; looked for once, when the first character needs it, and kept until the program ends.
fn cjk() -> Option<&'static FontRef<'static>> {
    static FACE: OnceLock<Option<FontRef<'static>>> = OnceLock::new();
    FACE.get_or_init(|| {
        let named = std::env::var_os("INFERLAB_CJK_FONT").map(PathBuf::from);
        named.into_iter().chain(CJK_PATHS.iter().map(PathBuf::from)).find_map(|path| {
            let size = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?.len();
            let bytes = (size <= LARGEST_FONT_BYTES).then(|| std::fs::read(&path).ok())??;
            // A `.ttc` holds several faces; the first will do.
            FontRef::try_from_slice(bytes.leak())
                .ok()
                .filter(|face| face.units_per_em().is_some_and(|units| units > 0.0))
        })
    })
    .as_ref()
}

fn glyph(face: &FontRef<'static>, c: char) -> Option<GlyphId> {
    Some(face.glyph_id(c)).filter(|id| id.0 != 0)
}

fn em_width(face: &FontRef<'static>, id: GlyphId) -> f64 {
    f64::from(face.h_advance_unscaled(id)) / f64::from(face.units_per_em().unwrap_or(1000.0))
}

/// Where text is drawn from: with the faces at hand only, or with whatever a browser will find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Faces {
    /// Roboto alone: what the SVG is measured with, the same on every machine.
    Embedded,
    /// Roboto and the system CJK face.
    Installed,
}

/// Width of `text` in em. A character that Roboto lacks counts one em when wide (CJK), else 0.6.
pub fn width_em(text: &str, bold: bool) -> f64 {
    let face = embedded(bold);
    text.chars()
        .map(|c| glyph(face, c).map_or(if (c as u32) >= 0x1100 { 1.0 } else { 0.6 }, |id| em_width(face, id)))
        .sum()
}

/// A glyph to paint: its face and where its origin is, in em from the start of the text.
pub struct Placed {
    /// The face it comes from.
    pub face: &'static FontRef<'static>,
    /// The glyph.
    pub id: GlyphId,
    /// Distance of its origin from the start of the text, in em.
    pub at_em: f64,
}

/// The glyphs of `text` and their width in em. A character no face has is written out as `\u{957f}`: never a box.
///
/// What is written out is wider than what the chart made room for ([`width_em`]); the text is then cut to that room with `…`.
pub fn layout(text: &str, bold: bool, faces: Faces) -> (Vec<Placed>, f64) {
    let roboto = embedded(bold);
    let mut placed = Vec::with_capacity(text.len());
    let mut at_em = 0.0;
    let mut place = |face: &'static FontRef<'static>, id: GlyphId| {
        placed.push(Placed { face, id, at_em });
        at_em += em_width(face, id);
    };
    for c in text.chars() {
        if let Some(id) = glyph(roboto, c) {
            place(roboto, id);
            continue;
        }
        let system = (faces == Faces::Installed).then(cjk).flatten();
        match system.and_then(|face| Some((face, glyph(face, c)?))) {
            Some((face, id)) => place(face, id),
            None => format!("\\u{{{:x}}}", c as u32).chars().for_each(|c| place(roboto, roboto.glyph_id(c))),
        }
    }
    let room = width_em(text, bold).max(width_em("…", bold)) + 1e-9;
    if at_em > room {
        let ellipsis = roboto.glyph_id('…');
        let room = room - em_width(roboto, ellipsis);
        placed.retain(|glyph| glyph.at_em + em_width(glyph.face, glyph.id) <= room);
        at_em = placed.last().map_or(0.0, |glyph| glyph.at_em + em_width(glyph.face, glyph.id));
        placed.push(Placed { face: roboto, id: ellipsis, at_em });
        at_em += em_width(roboto, ellipsis);
    }
    (placed, at_em)
}

/// `text` cut to `limit_em`, with `…` where something is missing.
pub fn ellipsis(text: &str, bold: bool, limit_em: f64) -> String {
    if width_em(text, bold) <= limit_em {
        return text.to_owned();
    }
    let room = limit_em - width_em("…", bold);
    let mut used = 0.0;
    let kept: String = text
        .chars()
        .take_while(|&c| {
            used += width_em(c.encode_utf8(&mut [0; 4]), bold);
            used <= room
        })
        .collect();
    format!("{}…", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_faces_have_every_character_our_own_text_uses() {
        for bold in [false, true] {
            for c in (' '..='~').chain("–—…·×÷±≥≤≈µ°²¹³µéüßЯΩ".chars()) {
                assert!(glyph(embedded(bold), c).is_some(), "{c:?} bold {bold}");
            }
        }
    }

    #[test]
    fn a_character_without_a_face_is_spelled_out_and_never_the_box_glyph() {
        let text = "长".repeat(9);
        let (glyphs, width) = layout(&text, false, Faces::Embedded);
        let spelled: Vec<GlyphId> = "\\u{957f}".chars().map(|c| embedded(false).glyph_id(c)).collect();
        assert_eq!(glyphs[..8].iter().map(|g| g.id).collect::<Vec<_>>(), spelled);
        assert!(glyphs.iter().all(|g| g.id.0 != 0));
        assert!(width <= width_em(&text, false) + 1e-6, "{width}");
    }

    #[test]
    fn a_cut_label_fits_its_room_and_says_that_it_was_cut() {
        let cut = ellipsis(&"长".repeat(300), false, 10.0);
        assert!(width_em(&cut, false) <= 10.0 && cut.ends_with('…'), "{cut}");
        assert_eq!(ellipsis("short", false, 10.0), "short");
    }
}
