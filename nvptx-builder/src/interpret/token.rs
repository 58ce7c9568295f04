//! PTX as tokens with their lines.

use super::error::ParseError;

/// One token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'t> {
    /// A name, a directive (`.reg`), an opcode with its modifiers, a register (`%r1`) or a label (`$L__BB0_1`).
    Word(&'t str),
    /// A number, as its bits: floats of 32 bits in the low half.
    Number(u64),
    /// Text in quotes, without them, or a number with a point.
    Text(&'t str),
    /// Anything else.
    Mark(char),
}

/// A token and where it stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lexeme<'t> {
    pub token: Token<'t>,
    /// The line, from 1.
    pub line: u32,
    /// The byte in the text.
    pub at: usize,
}

fn starts_word(c: char) -> bool {
    c.is_ascii_alphabetic() || matches!(c, '_' | '$' | '%' | '.')
}

fn in_word(c: char) -> bool {
    starts_word(c) || c.is_ascii_digit()
}

/// The tokens of a text.
pub(super) fn tokens(text: &str) -> Result<Vec<Lexeme<'_>>, ParseError> {
    let mut found = Vec::new();
    let (mut rest, mut line) = (text, 1u32);
    while let Some(c) = rest.chars().next() {
        let at = text.len() - rest.len();
        let mut push = |token| found.push(Lexeme { token, line, at });
        let length = if c.is_whitespace() {
            line += u32::from(c == '\n');
            c.len_utf8()
        } else if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            let end = rest.find("*/").ok_or_else(|| ParseError::new(line, "a comment does not end"))? + 2;
            line += rest[..end].matches('\n').count() as u32;
            end
        } else if c == '"' {
            let end = rest[1..].find('"').ok_or_else(|| ParseError::new(line, "a text does not end"))?;
            push(Token::Text(&rest[1..=end]));
            end + 2
        } else if starts_word(c) {
            let end = word_end(rest);
            push(Token::Word(&rest[..end]));
            end
        } else if c.is_ascii_digit() {
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '.')).unwrap_or(rest.len());
            let digits = &rest[..end];
            match number(digits) {
                Some(number) => push(Token::Number(number)),
                // A version, or a double, which no instruction here takes.
                None if digits.contains('.') => push(Token::Text(digits)),
                None => return Err(ParseError::new(line, format!("`{digits}` is no number of PTX"))),
            }
            end
        } else {
            push(Token::Mark(c));
            c.len_utf8()
        };
        rest = &rest[length..];
    }
    Ok(found)
}

/// Where a word ends: `::` belongs to modifiers (`.L1::no_allocate`), `:` ends a label.
fn word_end(text: &str) -> usize {
    let mut end = 0;
    loop {
        end += text[end..].find(|c: char| !in_word(c)).unwrap_or(text.len() - end);
        match text[end..].strip_prefix("::") {
            Some(after) if after.starts_with(in_word) => end += 2,
            _ => return end,
        }
    }
}

/// A number as PTX writes it: decimal, `0x`, `0b`, octal, `0f` and `0d` with the bits of a float.
fn number(text: &str) -> Option<u64> {
    let digits = text.strip_suffix('U').unwrap_or(text);
    let based = |prefix: [&str; 2], base: u32| {
        let digits = digits.strip_prefix(prefix[0]).or_else(|| digits.strip_prefix(prefix[1]))?;
        u64::from_str_radix(digits, base).ok()
    };
    if let Some(bits) = based(["0x", "0X"], 16) {
        return Some(bits);
    }
    if text.len() == 10 && text.starts_with(['0']) && text[1..].starts_with(['f', 'F']) {
        return u64::from_str_radix(&text[2..], 16).ok();
    }
    if text.len() == 18 && text.starts_with(['0']) && text[1..].starts_with(['d', 'D']) {
        return u64::from_str_radix(&text[2..], 16).ok();
    }
    if let Some(bits) = based(["0b", "0B"], 2) {
        return Some(bits);
    }
    if digits.len() > 1 && digits.starts_with('0') {
        return u64::from_str_radix(digits, 8).ok();
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_numbers_and_marks() {
        let text =
            "$L_1:\n\t@!%p1 ld.global.L1::no_allocate.u32 %r1, [%rd2+0x10]; // 3\n\tmov.b32 %r2, -017;";
        let found: Vec<_> = tokens(text).unwrap().iter().map(|found| (found.token, found.line)).collect();
        let word = Token::Word;
        let mark = Token::Mark;
        let expected = [
            (word("$L_1"), 1),
            (mark(':'), 1),
            (mark('@'), 2),
            (mark('!'), 2),
            (word("%p1"), 2),
            (word("ld.global.L1::no_allocate.u32"), 2),
            (word("%r1"), 2),
            (mark(','), 2),
            (mark('['), 2),
            (word("%rd2"), 2),
            (mark('+'), 2),
            (Token::Number(16), 2),
            (mark(']'), 2),
            (mark(';'), 2),
            (word("mov.b32"), 3),
            (word("%r2"), 3),
            (mark(','), 3),
            (mark('-'), 3),
            (Token::Number(15), 3),
            (mark(';'), 3),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn numbers() {
        assert_eq!(number("0"), Some(0));
        assert_eq!(number("0b101"), Some(5));
        assert_eq!(number("0xffU"), Some(255));
        assert_eq!(number("0f3F800000"), Some(u64::from(1f32.to_bits())));
        assert_eq!(number("0d3FF0000000000000"), Some(1f64.to_bits()));
        assert_eq!(number("18446744073709551615"), Some(u64::MAX));
        assert_eq!(number("1.5"), None);
        assert_eq!(number("12z"), None);
    }
}
