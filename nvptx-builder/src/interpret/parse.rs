//! From text to entries: declarations, scopes, labels. What an instruction means is in `decode`.

use super::decode;
use super::error::ParseError;
use super::op::{Dst, Instruction, Op, Pred, Special, Src};
use super::token::{Lexeme, Token, tokens};
use std::collections::HashMap;

/// A parameter of an entry.
#[derive(Clone, Debug)]
pub(super) struct Parameter {
    pub name: String,
    pub bytes: u32,
}

/// A kernel, ready to be run.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub name: String,
    pub parameters: Vec<Parameter>,
    /// Threads of a block, where the text says how many.
    pub threads: Option<[u32; 3]>,
    pub shared_bytes: u32,
    pub code: Vec<Instruction>,
    /// Where each instruction stands in the text.
    pub spans: Vec<(u32, u32)>,
    /// Names of the registers of up to 32 bits, of 64 bits, of the predicates.
    pub names: [Vec<String>; 3],
}

/// A variable of the module, in global or constant memory.
#[derive(Clone, Debug)]
pub(super) struct Variable {
    pub name: String,
    pub bytes: Vec<u8>,
    pub writable: bool,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Name {
    W(u16),
    D(u16),
    P(u16),
    /// Place in the shared memory of the block.
    Shared(u32),
    Parameter(u16),
    Variable(u16),
}

/// An operand as it is written.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Operand<'t> {
    Word(&'t str),
    Number(u64),
    /// `!%p1`.
    Not(&'t str),
    /// `%p1|%p2`.
    Pair(&'t str, &'t str),
    /// `[base+offset]`; the base may be a number.
    Address(Option<&'t str>, i64),
    Vector(Vec<Operand<'t>>),
}

/// The place of the first byte of shared memory: not 0, so that a null pointer is none into it.
pub(super) const SHARED_BASE: u64 = 1024;

#[derive(Default)]
struct Scope {
    parent: Option<usize>,
    names: HashMap<String, Name>,
    labels: HashMap<String, u32>,
}

/// An entry that is being read.
pub(super) struct Body<'m> {
    scopes: Vec<Scope>,
    scope: usize,
    variables: &'m [Variable],
    pub entry: Entry,
    /// Branches whose targets are not known yet: instruction, label, scope, line.
    branches: Vec<(usize, String, usize, u32)>,
}

/// A reader of tokens.
struct Reader<'t> {
    tokens: Vec<Lexeme<'t>>,
    next: usize,
}

type Result<T> = std::result::Result<T, ParseError>;

impl<'t> Reader<'t> {
    fn peek(&self) -> Option<Token<'t>> {
        self.tokens.get(self.next).map(|found| found.token)
    }

    fn line(&self) -> u32 {
        self.tokens.get(self.next).or(self.tokens.last()).map_or(1, |found| found.line)
    }

    fn at(&self) -> usize {
        self.tokens.get(self.next).or(self.tokens.last()).map_or(0, |found| found.at)
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(ParseError::new(self.line(), message))
    }

    fn take(&mut self) -> Result<Token<'t>> {
        match self.peek() {
            Some(token) => {
                self.next += 1;
                Ok(token)
            }
            None => self.error("the text ends too early"),
        }
    }

    fn is(&mut self, mark: char) -> bool {
        let found = self.peek() == Some(Token::Mark(mark));
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, mark: char) -> Result<()> {
        if self.is(mark) {
            return Ok(());
        }
        let found = self.peek();
        self.error(format!("expected `{mark}`, found {found:?}"))
    }

    fn word(&mut self) -> Result<&'t str> {
        match self.take()? {
            Token::Word(word) => Ok(word),
            other => {
                self.next -= 1;
                self.error(format!("expected a name, found {other:?}"))
            }
        }
    }

    fn number(&mut self) -> Result<u64> {
        let negative = self.is('-');
        match self.take()? {
            Token::Number(number) if negative => Ok(number.wrapping_neg()),
            Token::Number(number) => Ok(number),
            other => {
                self.next -= 1;
                self.error(format!("expected a number, found {other:?}"))
            }
        }
    }

    /// Skips to behind the next `;`.
    fn skip(&mut self) -> Result<()> {
        while self.take()? != Token::Mark(';') {}
        Ok(())
    }

    fn operand(&mut self) -> Result<Operand<'t>> {
        if self.is('[') {
            let base = match self.peek() {
                Some(Token::Word(word)) => {
                    self.next += 1;
                    Some(word)
                }
                _ => None,
            };
            self.is('+');
            let offset = if self.is(']') {
                return Ok(Operand::Address(base, 0));
            } else {
                self.number()?
            };
            self.expect(']')?;
            return Ok(Operand::Address(base, offset as i64));
        }
        if self.is('{') {
            let mut parts = vec![self.operand()?];
            while self.is(',') {
                parts.push(self.operand()?);
            }
            self.expect('}')?;
            return Ok(Operand::Vector(parts));
        }
        if self.is('!') {
            return Ok(Operand::Not(self.word()?));
        }
        match self.peek() {
            Some(Token::Word(_)) => {
                let word = self.word()?;
                if self.is('|') {
                    return Ok(Operand::Pair(word, self.word()?));
                }
                Ok(Operand::Word(word))
            }
            _ => Ok(Operand::Number(self.number()?)),
        }
    }
}

/// Bytes of a type of PTX: `.b32`, `.u64`.
fn type_bytes(word: &str) -> Option<u32> {
    let bits: u32 = word.strip_prefix('.')?.strip_prefix(['b', 'u', 's', 'f'])?.parse().ok()?;
    [8, 16, 32, 64].contains(&bits).then_some(bits / 8)
}

/// The entries and variables of a text.
pub(super) fn parse(text: &str) -> Result<(String, Vec<Entry>, Vec<Variable>)> {
    let mut reader = Reader { tokens: tokens(text)?, next: 0 };
    let (mut target, mut entries, mut variables) = (String::new(), Vec::new(), Vec::new());
    // Shared variables of the module: every entry gets all of them, where a device gives it those that it names.
    let mut shared: Vec<(String, u32)> = Vec::new();
    while let Some(token) = reader.peek() {
        let word = match token {
            Token::Word(word) => word,
            other => return reader.error(format!("expected a directive, found {other:?}")),
        };
        match word {
            ".version" | ".address_size" => {
                let line = reader.line();
                reader.next += 1;
                while reader.peek().is_some() && reader.line() == line {
                    reader.next += 1;
                }
            }
            ".target" => {
                reader.next += 1;
                target = reader.word()?.to_owned();
                while reader.is(',') {
                    reader.word()?;
                }
            }
            ".visible" | ".weak" | ".extern" => reader.next += 1,
            ".entry" => {
                reader.next += 1;
                entries.push(entry(&mut reader, &variables, &shared)?);
            }
            ".shared" => {
                reader.next += 1;
                let (name, bytes, _) = declaration(&mut reader)?;
                reader.expect(';')?;
                shared.push((name, bytes));
            }
            ".global" | ".const" => {
                reader.next += 1;
                variables.push(variable(&mut reader, word == ".global")?);
            }
            ".file" => {
                reader.next += 2;
                reader.word().or_else(|_| reader.take().map(|_| ""))?;
            }
            _ => return reader.error(format!("the interpreter does not know the directive `{word}`")),
        }
    }
    Ok((target, entries, variables))
}

/// `.align 4 .b8 name[16] = {1, 2}`, behind the space.
fn variable(reader: &mut Reader<'_>, writable: bool) -> Result<Variable> {
    let (name, size, element) = declaration(reader)?;
    let mut bytes = Vec::new();
    if reader.is('=') {
        let list = reader.is('{');
        loop {
            let value = reader.number()?;
            bytes.extend(&value.to_le_bytes()[..element as usize]);
            if !reader.is(',') {
                break;
            }
        }
        if list {
            reader.expect('}')?;
        }
    }
    bytes.resize((size as usize).max(bytes.len()), 0);
    reader.expect(';')?;
    Ok(Variable { name, bytes, writable })
}

/// Name, bytes of all elements, bytes of one. The alignment is skipped: every variable gets what any type needs.
fn declaration(reader: &mut Reader<'_>) -> Result<(String, u32, u32)> {
    let mut element = None;
    loop {
        let word = reader.word()?;
        match word {
            ".align" => drop(reader.number()?),
            ".ptr" | ".global" | ".shared" | ".const" => {}
            _ if word.starts_with('.') => {
                element = Some(type_bytes(word).ok_or_else(|| {
                    ParseError::new(reader.line(), format!("`{word}` is no type that the interpreter knows"))
                })?);
            }
            name => {
                let Some(element) = element else { return reader.error("the declaration has no type") };
                let mut count = 1;
                if reader.is('[') {
                    count = if reader.is(']') { 0 } else { reader.number()? };
                    if count != 0 {
                        reader.expect(']')?;
                    }
                }
                let bytes = count.checked_mul(u64::from(element)).and_then(|bytes| u32::try_from(bytes).ok());
                let Some(bytes) = bytes else { return reader.error(format!("`{name}` is too large")) };
                return Ok((name.to_owned(), bytes, element));
            }
        }
    }
}

fn entry(reader: &mut Reader<'_>, variables: &[Variable], shared: &[(String, u32)]) -> Result<Entry> {
    let name = reader.word()?.to_owned();
    let mut parameters = Vec::new();
    if reader.is('(') {
        while !reader.is(')') {
            if reader.word()? != ".param" {
                return reader.error("expected `.param`");
            }
            let (name, bytes, _) = declaration(reader)?;
            parameters.push(Parameter { name, bytes });
            reader.is(',');
        }
    }
    let mut threads = None;
    while let Some(Token::Word(directive)) = reader.peek() {
        reader.next += 1;
        let mut numbers = Vec::new();
        while let Some(Token::Number(number)) = reader.peek() {
            numbers.push(number as u32);
            reader.next += 1;
            reader.is(',');
        }
        if directive == ".reqntid" {
            let at = |i: usize| numbers.get(i).copied().unwrap_or(1);
            threads = Some([at(0), at(1), at(2)]);
        }
    }
    let names = [Vec::new(), Vec::new(), Vec::new()];
    let (code, spans) = (Vec::new(), Vec::new());
    let entry = Entry { name, parameters, threads, shared_bytes: 0, code, spans, names };
    let mut body = Body { scopes: vec![Scope::default()], scope: 0, variables, entry, branches: Vec::new() };
    shared.iter().for_each(|(name, bytes)| body.shared(name.clone(), *bytes));
    reader.expect('{')?;
    body.read(reader)?;
    body.link()?;
    Ok(body.entry)
}

impl Body<'_> {
    fn read(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        loop {
            let line = reader.line();
            match reader.peek() {
                Some(Token::Mark('}')) => {
                    reader.next += 1;
                    match self.scopes[self.scope].parent {
                        Some(parent) => self.scope = parent,
                        None => return Ok(()),
                    }
                }
                Some(Token::Mark('{')) => {
                    reader.next += 1;
                    self.scopes.push(Scope { parent: Some(self.scope), ..Scope::default() });
                    self.scope = self.scopes.len() - 1;
                }
                Some(Token::Mark(';')) => reader.next += 1,
                Some(Token::Mark('@')) => self.instruction(reader)?,
                Some(Token::Word(".reg")) => {
                    reader.next += 1;
                    self.registers(reader)?;
                }
                Some(Token::Word(".shared")) => {
                    reader.next += 1;
                    let (name, bytes, _) = declaration(reader)?;
                    reader.expect(';')?;
                    self.shared(name, bytes);
                }
                Some(Token::Word(".pragma")) => reader.skip()?,
                Some(Token::Word(".loc")) => {
                    while reader.peek().is_some() && reader.line() == line {
                        reader.next += 1;
                    }
                }
                Some(Token::Word(word)) if word.starts_with('.') => {
                    return reader.error(format!("the interpreter does not know the directive `{word}`"));
                }
                Some(Token::Word(word))
                    if reader.tokens.get(reader.next + 1).map(|next| next.token)
                        == Some(Token::Mark(':')) =>
                {
                    reader.next += 2;
                    let here = self.entry.code.len() as u32;
                    if self.scopes[self.scope].labels.insert(word.to_owned(), here).is_some() {
                        return reader.error(format!("the label `{word}` stands here twice"));
                    }
                }
                Some(Token::Word(_)) => self.instruction(reader)?,
                Some(other) => return reader.error(format!("expected an instruction, found {other:?}")),
                None => return reader.error("the entry does not end"),
            }
        }
    }

    fn shared(&mut self, name: String, bytes: u32) {
        let place = self.entry.shared_bytes.next_multiple_of(16);
        self.entry.shared_bytes = place.saturating_add(bytes);
        self.scopes[self.scope].names.insert(name, Name::Shared(place));
    }

    /// `.reg .b32 %r<10>, x;`
    fn registers(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        let kind = reader.word()?;
        loop {
            let name = reader.word()?;
            if reader.is('<') {
                let count = reader.number()?;
                reader.expect('>')?;
                if count > 0xffff {
                    return reader.error(format!("`{name}<{count}>` are too many registers"));
                }
                for number in 0..count {
                    self.register(reader, kind, format!("{name}{number}"))?;
                }
            } else {
                self.register(reader, kind, name.to_owned())?;
            }
            if !reader.is(',') {
                return reader.expect(';');
            }
        }
    }

    fn register(&mut self, reader: &Reader<'_>, kind: &str, name: String) -> Result<()> {
        let (file, new): (usize, fn(u16) -> Name) = match type_bytes(kind) {
            _ if kind == ".pred" => (2, Name::P),
            Some(1..=4) => (0, Name::W),
            Some(8) => (1, Name::D),
            _ => return reader.error(format!("`{kind}` is no type of register that the interpreter knows")),
        };
        let slots = &mut self.entry.names[file];
        let Ok(slot) = u16::try_from(slots.len()) else { return reader.error("too many registers") };
        slots.push(name.clone());
        self.scopes[self.scope].names.insert(name, new(slot));
        Ok(())
    }

    fn instruction(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        let (line, start) = (reader.line(), reader.at());
        let wrong = |message: String| ParseError::new(line, message);
        let mut guard = None;
        if reader.is('@') {
            let not = reader.is('!');
            let name = reader.word()?;
            match self.name(name) {
                Some(Name::P(slot)) => guard = Some((slot, not)),
                _ => return Err(wrong(format!("`{name}` is no predicate"))),
            }
        }
        let opcode = reader.word()?;
        let mut operands = Vec::new();
        if !reader.is(';') {
            loop {
                operands.push(reader.operand()?);
                if !reader.is(',') {
                    break;
                }
            }
            reader.expect(';')?;
        }
        let end = reader.tokens[reader.next - 1].at;
        let number = self.entry.code.len();
        if opcode == "bra" || opcode == "bra.uni" {
            let [Operand::Word(label)] = operands[..] else {
                return Err(wrong(format!("`{opcode}` takes one label")));
            };
            self.branches.push((number, label.to_owned(), self.scope, line));
            self.push(Op::Bra { target: 0 }, guard, line, (start, end));
            return Ok(());
        }
        let op = decode::decode(self, opcode, &operands).map_err(wrong)?;
        self.push(op, guard, line, (start, end));
        Ok(())
    }

    fn push(&mut self, op: Op, guard: Option<(u16, bool)>, line: u32, span: (usize, usize)) {
        self.entry.code.push(Instruction { op, guard, line });
        self.entry.spans.push((span.0 as u32, span.1 as u32));
    }

    /// Branches get their targets.
    fn link(&mut self) -> Result<()> {
        for (number, label, scope, line) in std::mem::take(&mut self.branches) {
            let mut from = Some(scope);
            let target = loop {
                let Some(scope) = from else {
                    return Err(ParseError::new(line, format!("there is no label `{label}`")));
                };
                match self.scopes[scope].labels.get(&label) {
                    Some(&target) => break target,
                    None => from = self.scopes[scope].parent,
                }
            };
            self.entry.code[number].op = Op::Bra { target };
        }
        Ok(())
    }

    pub fn name(&self, name: &str) -> Option<Name> {
        let mut from = Some(self.scope);
        while let Some(scope) = from {
            if let Some(&found) = self.scopes[scope].names.get(name) {
                return Some(found);
            }
            from = self.scopes[scope].parent;
        }
        if let Some(number) = self.entry.parameters.iter().position(|parameter| parameter.name == name) {
            return Some(Name::Parameter(number as u16));
        }
        let number = self.variables.iter().position(|variable| variable.name == name)?;
        Some(Name::Variable(number as u16))
    }

    /// An operand that is read, not a predicate.
    pub fn src(&self, operand: &Operand<'_>) -> std::result::Result<Src, String> {
        match operand {
            Operand::Number(number) => Ok(Src::Imm(*number)),
            Operand::Word(word) => match self.name(word) {
                Some(Name::W(slot)) => Ok(Src::W(slot)),
                Some(Name::D(slot)) => Ok(Src::D(slot)),
                Some(Name::Shared(place)) => Ok(Src::Imm(SHARED_BASE + u64::from(place))),
                Some(Name::Variable(number)) => Ok(Src::Variable(number)),
                Some(Name::P(_) | Name::Parameter(_)) => Err(format!("`{word}` cannot be read here")),
                None if *word == "WARP_SZ" => Ok(Src::Imm(32)),
                None => Special::parse(word).map(Src::Special).ok_or_else(|| format!("there is no `{word}`")),
            },
            other => Err(format!("{other:?} cannot be read here")),
        }
    }

    pub fn dst(&self, operand: &Operand<'_>) -> std::result::Result<Dst, String> {
        match operand {
            Operand::Word("_") => Ok(Dst::Sink),
            Operand::Word(word) => match self.name(word) {
                Some(Name::W(slot)) => Ok(Dst::W(slot)),
                Some(Name::D(slot)) => Ok(Dst::D(slot)),
                _ => Err(format!("`{word}` is no register that can be written here")),
            },
            other => Err(format!("{other:?} cannot be written")),
        }
    }

    /// A predicate that is written.
    pub fn pred_dst(&self, word: &str) -> std::result::Result<Option<u16>, String> {
        match self.name(word) {
            Some(Name::P(slot)) => Ok(Some(slot)),
            None if word == "_" => Ok(None),
            _ => Err(format!("`{word}` is no predicate")),
        }
    }

    pub fn pred(&self, operand: &Operand<'_>) -> std::result::Result<Pred, String> {
        let (word, not) = match operand {
            Operand::Word(word) => (word, false),
            Operand::Not(word) => (word, true),
            Operand::Number(number) => return Ok(Pred::Const(*number & 1 == 1)),
            other => return Err(format!("{other:?} is no predicate")),
        };
        match self.name(word) {
            Some(Name::P(slot)) => Ok(if not { Pred::Not(slot) } else { Pred::P(slot) }),
            _ => Err(format!("`{word}` is no predicate")),
        }
    }
}
