//! A module's text, split into entries.
//!
//! The compiler writes one text for a crate. Committed so, every new entry would move the labels of all the others (`$L__BB17_3` holds
//! the number of the function) and a launch of one kernel would hand the driver all of them to compile. So each `.visible .entry`
//! becomes a text of its own, with the declarations that it reaches and no others, labels numbered as in a module of one function,
//! and without the two comment lines that LLVM writes around every `asm!`.

use super::{is_word, without_comments, words};

/// What a module's text consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// `.version`: for example `8.0`.
    pub version: String,
    /// `.target`: for example `sm_90`.
    pub target: String,
    /// `.address_size`.
    pub address_size: String,
    items: Vec<Item>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Item {
    kind: Kind,
    name: String,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Entry,
    Function,
    Variable,
}

/// One entry, taken out of its module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryText {
    /// Its name.
    pub name: String,
    /// The module-level declarations that it needs, each on lines of its own.
    pub declarations: String,
    /// From `.visible .entry` to the closing parenthesis of the parameter list.
    pub head: String,
    /// From `{` to `}`.
    pub body: String,
}

impl Module {
    /// Reads a module's text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut module = Self {
            version: String::new(),
            target: String::new(),
            address_size: String::new(),
            items: Vec::new(),
        };
        let mut rest = text;
        loop {
            rest = skip_blank(rest);
            if rest.is_empty() {
                break;
            }
            let line = rest.lines().next().unwrap_or_default();
            let plain = without_comments(line);
            let mut fields = plain.split_whitespace();
            let header = match fields.next() {
                Some(".version") => &mut module.version,
                Some(".target") => &mut module.target,
                Some(".address_size") => &mut module.address_size,
                _ => {
                    let (item, after) = Item::parse(rest)?;
                    module.items.push(item);
                    rest = after;
                    continue;
                }
            };
            *header = fields.next().unwrap_or_default().trim_end_matches(',').to_owned();
            rest = &rest[line.len()..];
        }
        for (directive, value) in [
            (".version", &module.version),
            (".target", &module.target),
            (".address_size", &module.address_size),
        ] {
            if value.is_empty() {
                return Err(format!("there is no `{directive}` line"));
            }
        }
        Ok(module)
    }

    /// The entries, in the order of the text.
    pub fn entries(&self) -> Result<Vec<EntryText>, String> {
        self.items.iter().filter(|item| item.kind == Kind::Entry).map(|item| self.entry(item)).collect()
    }

    fn entry(&self, entry: &Item) -> Result<EntryText, String> {
        let mut needed = vec![false; self.items.len()];
        let mut open = vec![entry];
        while let Some(item) = open.pop() {
            let plain = without_comments(&item.text);
            for word in words(&plain) {
                for (index, other) in self.items.iter().enumerate() {
                    if other.name == word && other.kind != Kind::Entry && !needed[index] {
                        needed[index] = true;
                        open.push(other);
                    }
                }
            }
        }
        let mut declarations = String::new();
        for (item, _) in self.items.iter().zip(&needed).filter(|(_, needed)| **needed) {
            declarations.push_str(&tidy(&item.text, false));
        }
        let open = body_start(&entry.text).ok_or_else(|| format!("entry `{}` has no body", entry.name))?;
        let head = tidy(&entry.text[..open], false);
        Ok(EntryText {
            name: entry.name.clone(),
            declarations,
            head: head.trim_end().to_owned(),
            body: tidy(&entry.text[open..], true),
        })
    }
}

impl Item {
    fn parse(text: &str) -> Result<(Self, &str), String> {
        let end =
            item_end(text).ok_or_else(|| format!("nothing ends what starts with `{}`", first_line(text)))?;
        let (text, after) = text.split_at(end);
        let plain = without_comments(text);
        let kind = match () {
            () if words(&plain).any(|word| word == ".entry") => Kind::Entry,
            () if words(&plain).any(|word| word == ".func") => Kind::Function,
            () => Kind::Variable,
        };
        let name = match kind {
            Kind::Entry => plain.split_once(".entry").and_then(|(_, after)| words(after).next()),
            Kind::Function => plain.split_once(".func").and_then(|(_, after)| {
                // `.func (.param .b32 result) name (...)`: the result comes first.
                let after = after.trim_start();
                let after = if after.starts_with('(') { after.split_once(')')?.1 } else { after };
                words(after).next()
            }),
            Kind::Variable => {
                let declared = plain.split(['=', '[', ';']).next().unwrap_or_default();
                words(declared).last()
            }
        };
        let name = name.ok_or_else(|| format!("cannot find the name in `{}`", first_line(text)))?.to_owned();
        Ok((Self { kind, name, text: text.to_owned() }, after))
    }
}

fn first_line(text: &str) -> &str {
    text.trim_start().lines().next().unwrap_or_default()
}

/// After white space and comments.
fn skip_blank(mut text: &str) -> &str {
    loop {
        text = text.trim_start();
        if text.starts_with("//") {
            text = text.find('\n').map_or("", |end| &text[end..]);
        } else if text.starts_with("/*") {
            text = text.find("*/").map_or("", |end| &text[end + 2..]);
        } else {
            return text;
        }
    }
}

/// Byte positions of the characters that are neither in comments nor in strings.
fn code(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut rest = text.char_indices().peekable();
    std::iter::from_fn(move || {
        loop {
            let (at, c) = rest.next()?;
            match (c, rest.peek().map(|&(_, next)| next)) {
                ('/', Some('/')) => while rest.next_if(|&(_, c)| c != '\n').is_some() {},
                ('/', Some('*')) => {
                    let end = text[at + 2..].find("*/").map_or(text.len(), |end| at + 2 + end + 2);
                    while rest.next_if(|&(at, _)| at < end).is_some() {}
                }
                ('"', _) => {
                    while rest.next_if(|&(_, c)| c != '"').is_some() {}
                    rest.next();
                }
                _ => return Some((at, c)),
            }
        }
    })
}

/// Where the item that starts here ends: after its body, or after its semicolon.
fn item_end(text: &str) -> Option<usize> {
    let is_code = body_start(text).is_some();
    let mut depth = 0_u32;
    for (at, c) in code(text) {
        match c {
            '{' | '(' => depth += 1,
            '}' | ')' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 && c == '}' && is_code {
                    return Some(at + 1);
                }
            }
            ';' if depth == 0 => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// Where the body of a function begins; `None` for a declaration.
fn body_start(text: &str) -> Option<usize> {
    let mut parentheses = 0_u32;
    for (at, c) in code(text) {
        match c {
            '(' => parentheses += 1,
            ')' => parentheses = parentheses.checked_sub(1)?,
            ';' if parentheses == 0 => return None,
            '{' if parentheses == 0 => {
                let head = without_comments(&text[..at]);
                return words(&head).any(|word| word == ".entry" || word == ".func").then_some(at);
            }
            _ => {}
        }
    }
    None
}

/// LLVM's own comments: what it writes around `asm!` and `global_asm!`, and before functions.
const NOISE: [&str; 7] = [
    "begin inline asm",
    "end inline asm",
    "Start of file scope inline assembly",
    "End of file scope inline assembly",
    ".globl",
    "-- Begin function",
    "-- End function",
];

/// The text without LLVM's own comments and without blank lines; in a body, every line indented and labels numbered from function 0.
fn tidy(text: &str, body: bool) -> String {
    let mut tidied = String::with_capacity(text.len());
    for line in text.lines() {
        let line = match line.rfind("//") {
            Some(at) if NOISE.iter().any(|noise| line[at + 2..].trim_start().starts_with(noise)) => {
                &line[..at]
            }
            _ => line,
        };
        let line = line.trim_end();
        if line.is_empty() {
            continue;
        }
        if body {
            let at_edge = line == "{" || line == "}" || line.starts_with("$L");
            if !at_edge && !line.starts_with(char::is_whitespace) {
                tidied.push('\t');
            }
            tidied.push_str(&renumber(line));
        } else {
            tidied.push_str(line);
        }
        tidied.push('\n');
    }
    tidied
}

/// `$L__BB17_3` becomes `$L__BB0_3`.
fn renumber(line: &str) -> String {
    const LABEL: &str = "$L__BB";
    let mut renumbered = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(LABEL) {
        let (before, from) = rest.split_at(at + LABEL.len());
        renumbered.push_str(before);
        let digits = from.len() - from.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let is_label = digits > 0 && from[digits..].starts_with('_') && !before[..at].ends_with(is_word);
        renumbered.push_str(if is_label { "0" } else { &from[..digits] });
        rest = &from[digits..];
    }
    renumbered.push_str(rest);
    renumbered
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "//\n// Generated by LLVM NVPTX Back-End\n//\n\n.version 8.0\n.target sm_90\n.address_size 64\n\n\
// Start of file scope inline assembly\n.shared .align 16 .b8 first_memory[64];\n.shared .align 16 .b8 second_memory[64];\n// End of file scope inline assembly\n\
\t// .globl\tfirst\n.extern .func  (.param .b32 func_retval0) helper\n(\n\t.param .b32 helper_param_0\n)\n;\n\
.global .align 4 .u32 used[2] = {1, 2};\n.global .align 8 .u64 points[1] = {used};\n\n\
.visible .entry first(\n\t.param .u64 first_param_0\n)\n{\n\t.reg .b32 \t%r<3>;\n\n\t// begin inline asm\n\t.reg .b32 t;\nmov.u32 %r1, first_memory; // { a brace in a comment\n\t// end inline asm\n\
$L__BB0_1:\n\t@%p1 bra \t$L__BB0_1;\n\tret;\n\n}\n\t// .globl\tsecond\n.visible .entry second()\n{\n\tmov.b64 %rd1, points;\n$L__BB12_33:\n\t{ .reg .b32 q; }\n\tbra $L__BB12_33;\n}\n\
.func  (.param .b32 func_retval0) unused()\n{\n\tret;\n}\n";

    fn entries() -> Vec<EntryText> {
        Module::parse(TEXT).unwrap().entries().unwrap()
    }

    #[test]
    fn the_header_is_read() {
        let module = Module::parse(TEXT).unwrap();
        assert_eq!((&*module.version, &*module.target, &*module.address_size), ("8.0", "sm_90", "64"));
        let names: Vec<_> = module.items.iter().map(|item| (item.kind, &*item.name)).collect();
        let expected = [
            (Kind::Variable, "first_memory"),
            (Kind::Variable, "second_memory"),
            (Kind::Function, "helper"),
            (Kind::Variable, "used"),
            (Kind::Variable, "points"),
            (Kind::Entry, "first"),
            (Kind::Entry, "second"),
            (Kind::Function, "unused"),
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn an_entry_takes_what_it_reaches_and_no_more() {
        let entries = entries();
        assert_eq!(entries[0].declarations, ".shared .align 16 .b8 first_memory[64];\n");
        assert_eq!(
            entries[1].declarations,
            ".global .align 4 .u32 used[2] = {1, 2};\n.global .align 8 .u64 points[1] = {used};\n"
        );
    }

    #[test]
    fn the_body_is_tidy() {
        let entries = entries();
        assert_eq!(entries[0].head, ".visible .entry first(\n\t.param .u64 first_param_0\n)");
        assert_eq!(
            entries[0].body,
            "{\n\t.reg .b32 \t%r<3>;\n\t.reg .b32 t;\n\tmov.u32 %r1, first_memory; // { a brace in a comment\n\
$L__BB0_1:\n\t@%p1 bra \t$L__BB0_1;\n\tret;\n}\n"
        );
        assert_eq!(
            entries[1].body,
            "{\n\tmov.b64 %rd1, points;\n$L__BB0_33:\n\t{ .reg .b32 q; }\n\tbra $L__BB0_33;\n}\n"
        );
    }

    #[test]
    fn what_is_not_a_module_is_refused() {
        assert!(Module::parse("").unwrap_err().contains("`.version`"));
        let cut = TEXT.split_at(TEXT.len() - 4).0;
        assert!(Module::parse(cut).unwrap_err().contains("nothing ends"));
        assert!(Module::parse(".version 8.0\n.target sm_90\n.address_size 64\n}").is_err());
    }
}
