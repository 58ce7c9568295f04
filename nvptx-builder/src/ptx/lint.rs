//! What no shipped PTX may hold, told from the text alone.
//!
//! Each rule stands for something that compiles, often runs, and is wrong: a slice index leaves a call to the panic machinery, which
//! `ptxas` cannot resolve; a `static` becomes device memory that every launch shares; an array with a run-time index becomes local
//! memory, which is device memory with a nice name.

use super::{module::EntryText, without_comments, words};

/// One rule that an entry breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The entry.
    pub entry: String,
    /// The rule.
    pub rule: Rule,
    /// The word of the text that broke it.
    pub word: String,
}

/// What an entry may not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A call into the panic machinery.
    Panic,
    /// Any other call.
    Call,
    /// A function beside the entry.
    Function,
    /// Local memory.
    Local,
    /// Data in device memory.
    Global,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { entry, word, .. } = self;
        match self.rule {
            Rule::Panic => write!(
                f,
                "{entry}: a panic path is left, it calls `{word}`; index raw pointers instead of slices, and use operations that cannot \
                 panic (wrapping arithmetic, `get_unchecked`, `unwrap_unchecked`)"
            ),
            Rule::Call => write!(
                f,
                "{entry}: it calls `{word}`; an entry must be one body: mark every function that it uses `#[inline(always)]`"
            ),
            Rule::Function => write!(
                f,
                "{entry}: the function `{word}` stands beside it; an entry must be one body: mark every function that it uses \
                 `#[inline(always)]`"
            ),
            Rule::Local => write!(
                f,
                "{entry}: local memory (`{word}`); a local array stays in registers only if every index is a constant after unrolling: \
                 stamp long loops out with a macro, and take no address of a local"
            ),
            Rule::Global => write!(
                f,
                "{entry}: data in device memory (`{word}`); a `static` or a constant table became a global: pass it as a parameter, or \
                 declare shared memory with `asm!` or `global_asm!`"
            ),
        }
    }
}

/// Looks at the text of one entry, with or without its header.
pub fn lint(entry: &str, text: &str) -> Vec<Finding> {
    let plain = without_comments(text);
    let mut findings: Vec<Finding> = Vec::new();
    let mut find = |rule, word: &str| {
        if !findings.iter().any(|finding| finding.rule == rule) {
            findings.push(Finding { entry: entry.to_owned(), rule, word: word.to_owned() });
        }
    };
    for statement in plain.split(';') {
        let words: Vec<_> = words(statement).collect();
        for (at, word) in words.iter().enumerate() {
            let parts = || word.split('.').skip(1);
            if *word == "call" || word.starts_with("call.") {
                // `call.uni (result), name, (arguments)`
                let callee = called(statement).unwrap_or(word);
                find(if callee.contains("panicking") { Rule::Panic } else { Rule::Call }, callee);
            } else if *word == ".func" {
                let named = words[at + 1..]
                    .iter()
                    .find(|word| !word.starts_with('.') && !word.starts_with("func_retval"));
                let named = *named.unwrap_or(word);
                find(if named.contains("panicking") { Rule::Panic } else { Rule::Function }, named);
            } else if *word == ".local" || (!word.starts_with('.') && parts().any(|part| part == "local")) {
                find(
                    Rule::Local,
                    words[at..].iter().rfind(|word| word.starts_with("__local")).unwrap_or(word),
                );
            } else if *word == ".global" && (at == 0 || words[at - 1] != ".ptr") {
                // `.ptr .global` in a parameter list is a promise about a pointer.
                let declared = statement.split(['=', '[']).next().unwrap_or_default();
                find(Rule::Global, super::words(declared).last().unwrap_or(word));
            }
        }
    }
    findings
}

/// The callee: the first operand that is not in parentheses.
fn called(statement: &str) -> Option<&str> {
    let after = statement.split_once("call")?.1;
    let after = &after[after.find(char::is_whitespace)?..];
    let after = after.trim_start();
    let after = if after.starts_with('(') { after.split_once(')')?.1 } else { after };
    words(after).next()
}

/// Looks at an entry that was taken out of its module.
pub fn lint_entry(entry: &EntryText) -> Vec<Finding> {
    lint(&entry.name, &format!("{};{}{}", entry.declarations, entry.head, entry.body))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Vec<(Rule, String)> {
        lint("x", text).into_iter().map(|finding| (finding.rule, finding.word)).collect()
    }

    #[test]
    fn clean_text_has_no_findings() {
        let text = ".shared .align 16 .b8 memory[64];\n.visible .entry x(\n\t.param .u64 .ptr .global .align 1 p\n)\n{\n\tld.global.nc.u32 %r1, [%rd1];\n\
                    \tcvta.to.global.u64 %rd2, %rd1; // call .local .global .func\n\tst.shared.u32 [%r1], %r2;\n\tret;\n}";
        assert_eq!(rules(text), []);
    }

    #[test]
    fn every_rule_names_what_broke_it() {
        assert_eq!(
            rules("{ call.uni _ZN4core9panicking18panic_bounds_check17hE, (param0, param1);"),
            [(Rule::Panic, "_ZN4core9panicking18panic_bounds_check17hE".into())]
        );
        assert_eq!(rules("call.uni (retval0), helper, (param0);"), [(Rule::Call, "helper".into())]);
        assert_eq!(
            rules(".extern .func (.param .b32 func_retval0) helper (.param .b32 a);"),
            [(Rule::Function, "helper".into())]
        );
        assert_eq!(
            rules(".local .align 4 .b8 \t__local_depot0[64];"),
            [(Rule::Local, "__local_depot0".into())]
        );
        assert_eq!(rules("st.local.u32 [%rd1], %r1;"), [(Rule::Local, "st.local.u32".into())]);
        assert_eq!(rules(".global .align 4 .b8 table[4] = {1, 2, 3, 4};"), [(Rule::Global, "table".into())]);
        let finding = &lint("encode", ".global .align 4 .b8 table[4];")[0];
        assert!(finding.to_string().starts_with("encode: data in device memory (`table`)"), "{finding}");
    }
}
