//! Bars of text: eighths of a character, so that a short bar still tells.

use anstyle::{AnsiColor, Style};

const EIGHTHS: [char; 9] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
/// What a bar leaves of its full length.
const REST: char = '░';
const BAR: Style = AnsiColor::Cyan.on_default();

/// A bar of `share` (0 to 1) of `width` characters, without the rest. What is above 0 is seen.
pub fn bar(share: f64, width: usize) -> String {
    let most = 8 * width;
    let eighths = (share.clamp(0.0, 1.0) * most as f64).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(EIGHTHS[eighths % 8]);
    }
    bar
}

/// The same, filled up to its full length.
pub fn full_bar(share: f64, width: usize) -> String {
    let bar = bar(share, width);
    let rest = width - bar.chars().count();
    bar + &REST.to_string().repeat(rest)
}

/// Colours all bars in a text, for terminals; whoever prints it leaves colours out elsewhere.
pub fn painted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for character in text.chars() {
        let is_bar = EIGHTHS[1..].contains(&character);
        if is_bar != inside {
            out += &if is_bar { BAR.render().to_string() } else { BAR.render_reset().to_string() };
            inside = is_bar;
        }
        out.push(character);
    }
    if inside {
        out += &BAR.render_reset().to_string();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_eighths() {
        assert_eq!(
            [0.0, 0.0001, 0.5, 0.55, 1.0, 7.0].map(|share| bar(share, 4)),
            ["", "▏", "██", "██▎", "████", "████"]
        );
        assert_eq!([0.0, 0.68].map(|share| full_bar(share, 4)), ["░░░░", "██▊░"]);
        assert_eq!(painted("a ██▎░ b ▏"), "a \u{1b}[36m██▎\u{1b}[0m░ b \u{1b}[36m▏\u{1b}[0m");
    }
}
