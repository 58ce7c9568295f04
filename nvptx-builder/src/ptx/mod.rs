//! Taking a compiler's PTX apart and putting files together that people can read in a diff.

pub mod bounds;
pub mod lint;
pub mod module;
pub mod params;
pub mod stamp;

pub use bounds::Bounds;
pub use params::Param;

/// The text without comments; line breaks stay.
pub(crate) fn without_comments(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('/') {
        let (before, from) = rest.split_at(at);
        plain.push_str(before);
        rest = if from.starts_with("//") {
            from.find('\n').map_or("", |end| &from[end..])
        } else if from.starts_with("/*") {
            let end = from.find("*/").map_or(from.len(), |end| end + 2);
            plain.extend(from[..end].matches('\n'));
            &from[end..]
        } else {
            plain.push('/');
            &from[1..]
        };
    }
    plain.push_str(rest);
    plain
}

/// The words of a text: names, directives (`.shared`), opcodes with their modifiers (`ld.global.u32`), registers and labels.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !is_word(c)).filter(|word| !word.is_empty())
}

/// May this character be in a word of PTX?
pub(crate) fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_go_and_lines_stay() {
        assert_eq!(without_comments("a // b\nc /* d\ne */ f / g"), "a \nc \n f / g");
        assert_eq!(
            words("\t@%p1 ld.global.u32 %r1, [%rd2+4];").collect::<Vec<_>>(),
            ["%p1", "ld.global.u32", "%r1", "%rd2", "4"]
        );
    }
}
