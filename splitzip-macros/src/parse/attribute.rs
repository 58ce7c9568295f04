//! The settings: what stands between the parentheses of `#[kernel(..)]`.

use super::Faults;
use super::member::{Axis, short_name};
use super::parameter::check_paths;
use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::{Parse, ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{Error, Expr, ExprLit, Lit, Result, Token};

const KEYS: &str =
    "`dtype = [..]`, `scheme = [..]`, `except = [(..), ..]`, `warps`, `blocks`, `shared` and `block_shared`";

/// Threads of a block, in warps; and the blocks that a multiprocessor keeps track of.
pub const MOST: u32 = 32;
/// Threads of a multiprocessor, in warps.
pub const MOST_WARPS_RESIDENT: u32 = 64;

/// The settings, checked.
#[derive(Debug)]
pub struct Settings {
    /// Dtypes that the kernel is made for.
    pub dtype: Option<List>,
    /// Schemes that the kernel is made for.
    pub scheme: Option<List>,
    /// Pairs that it is not made for.
    pub except: Option<Exceptions>,
    /// Warps (programs) in a block.
    pub warps: Amount,
    /// Blocks that must fit on a multiprocessor.
    pub blocks: Amount,
    /// Shared bytes of a program.
    pub shared: Option<Expr>,
    /// Shared bytes of a block.
    pub block_shared: Option<Expr>,
}

impl Settings {
    /// The list of an axis.
    pub fn list(&self, axis: Axis) -> Option<&List> {
        match axis {
            Axis::Dtype => self.dtype.as_ref(),
            Axis::Scheme => self.scheme.as_ref(),
        }
    }
}

/// `blocks = 8`, or `blocks = S::ENCODE_BLOCKS`.
#[derive(Debug)]
pub enum Amount {
    /// The same for every member, checked.
    Number(u32),
    /// May use the generics: what it gives is checked for each member.
    Expression(Expr),
}

/// `dtype = [Bf16, Fp16]`.
#[derive(Debug)]
pub struct List {
    /// The key, for messages.
    pub key: Ident,
    /// The members: at least one, each once.
    pub members: Vec<Ident>,
}

/// `except = [(E4m3, W4)]`.
#[derive(Debug)]
pub struct Exceptions {
    /// The key, for messages.
    pub key: Ident,
    /// Pairs of a dtype and a scheme.
    pub pairs: Vec<(Ident, Ident)>,
}

impl Parse for Settings {
    fn parse(input: ParseStream<'_>) -> Result<Settings> {
        let mut read = Read::default();
        let mut faults = Faults::default();
        let mut seen: Vec<Ident> = Vec::new();
        while !input.is_empty() {
            let key: Ident = input.parse().map_err(|error| {
                Error::new(error.span(), format!("a setting is written `key = value`; the keys are {KEYS}"))
            })?;
            if seen.contains(&key) {
                faults.add(Error::new(key.span(), format!("`{key}` is set twice: keep one of them")));
            }
            if !input.peek(Token![=]) {
                return Err(match known(&key) {
                    true => Error::new(key.span(), format!("`{key}` needs a value: write `{key} = ..`")),
                    false => unknown(&key),
                });
            }
            input.parse::<Token![=]>()?;
            seen.push(key.clone());
            faults.note(read.take(key, input));
            // What a fault leaves behind belongs to the same value.
            while !input.is_empty() && !input.peek(Token![,]) {
                input.parse::<TokenTree>()?;
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        if let (Some(Ok((span, Amount::Number(warps)))), Some(Ok((_, Amount::Number(blocks))))) =
            (&read.warps, &read.blocks)
            && warps * blocks > MOST_WARPS_RESIDENT
        {
            faults.add(Error::new(
                *span,
                format!(
                    "`warps` x `blocks` is {}, but a multiprocessor holds {MOST_WARPS_RESIDENT} warps: lower one of them",
                    warps * blocks
                ),
            ));
        }
        let warps = faults.note(read.warps.unwrap_or_else(|| Err(missing("warps"))));
        let blocks = faults.note(read.blocks.unwrap_or_else(|| Err(missing("blocks"))));
        faults.finish()?;
        Ok(Settings {
            dtype: read.dtype,
            scheme: read.scheme,
            except: read.except,
            warps: warps.map_or(Amount::Number(0), |(_, warps)| warps),
            blocks: blocks.map_or(Amount::Number(0), |(_, blocks)| blocks),
            shared: read.shared,
            block_shared: read.block_shared,
        })
    }
}

/// What has been read so far. A number that is wrong is not one that is missing.
#[derive(Default)]
struct Read {
    dtype: Option<List>,
    scheme: Option<List>,
    except: Option<Exceptions>,
    warps: Option<Result<(Span, Amount)>>,
    blocks: Option<Result<(Span, Amount)>>,
    shared: Option<Expr>,
    block_shared: Option<Expr>,
}

impl Read {
    fn take(&mut self, key: Ident, value: ParseStream<'_>) -> Result<()> {
        match key.to_string().as_str() {
            "dtype" => self.dtype = Some(list(key, value, Axis::Dtype)?),
            "scheme" => self.scheme = Some(list(key, value, Axis::Scheme)?),
            "except" => self.except = Some(exceptions(key, value)?),
            "warps" => {
                self.warps = Some(amount(&key, value, "warps of a block, each of which runs one program"))
            }
            "blocks" => {
                self.blocks = Some(amount(&key, value, "blocks that must fit on a multiprocessor at once"))
            }
            "shared" => self.shared = Some(expression(value)?),
            "block_shared" => self.block_shared = Some(expression(value)?),
            _ => return Err(unknown(&key)),
        }
        Ok(())
    }
}

fn known(key: &Ident) -> bool {
    ["dtype", "scheme", "except", "warps", "blocks", "shared", "block_shared"]
        .iter()
        .any(|known| key == known)
}

fn unknown(key: &Ident) -> Error {
    Error::new(key.span(), format!("`{key}` is no setting of a kernel; the keys are {KEYS}"))
}

fn missing(key: &str) -> Error {
    let what = match key {
        "warps" => "how many warps (programs) a block has",
        _ => "how many blocks must fit on a multiprocessor, which bounds the registers",
    };
    Error::new(
        Span::call_site(),
        format!("`{key}` is missing: write `{key} = 8`, for example; it says {what}"),
    )
}

fn number(key: &Ident, value: ParseStream<'_>, what: &str) -> Result<(Span, u32)> {
    let rule =
        || format!("`{key}` is the number of {what}: write a number from 1 to {MOST}, such as `{key} = 8`");
    let value: Expr = value.parse()?;
    let Expr::Lit(ExprLit { lit: Lit::Int(literal), .. }) = value else {
        return Err(Error::new_spanned(value, rule()));
    };
    match literal.base10_parse::<u32>() {
        Ok(number) if (1..=MOST).contains(&number) => Ok((literal.span(), number)),
        _ => Err(Error::new(literal.span(), rule())),
    }
}

/// A literal is a number, and keeps its rules here; any other expression is left to the compiler.
fn amount(key: &Ident, value: ParseStream<'_>, what: &str) -> Result<(Span, Amount)> {
    if let Ok(Expr::Lit(_)) = value.fork().parse() {
        return number(key, value, what).map(|(span, number)| (span, Amount::Number(number)));
    }
    expression(value).map(|expression| (expression.span(), Amount::Expression(expression)))
}

fn expression(value: ParseStream<'_>) -> Result<Expr> {
    let value: Expr = value.parse()?;
    check_paths(value.to_token_stream())?;
    Ok(value)
}

fn list(key: Ident, value: ParseStream<'_>, axis: Axis) -> Result<List> {
    let example = axis.example();
    let elements =
        elements(value, Delimiter::Bracket, &format!("`{key}` is a list: write `{key} = [{example}, ..]`"))?;
    if elements.items.is_empty() {
        return Err(Error::new(
            elements.span,
            format!(
                "`{key}` is empty, so the kernel would have no entry: name at least one, such as `{key} = [{example}]`"
            ),
        ));
    }
    let mut faults = Faults::default();
    let mut members: Vec<Ident> = Vec::new();
    for element in elements.items {
        let Some(member) = faults.note(plain(element, example)) else { continue };
        if members.iter().any(|other| short_name(other) == short_name(&member)) {
            faults.add(Error::new(
                member.span(),
                format!(
                    "`{}` is in the list twice, and would be the same entry: keep one (names of entries are in lower case)",
                    short_name(&member)
                ),
            ));
        }
        members.push(member);
    }
    faults.finish()?;
    Ok(List { key, members })
}

fn exceptions(key: Ident, value: ParseStream<'_>) -> Result<Exceptions> {
    let rule = "`except` is a list of pairs that the kernel is not made for: write `except = [(E4m3, W4)]`";
    let mut pairs = Vec::new();
    for element in elements(value, Delimiter::Bracket, rule)?.items {
        let pair = |input: ParseStream<'_>| elements(input, Delimiter::Parenthesis, rule);
        let pair = pair.parse2(element)?;
        let [dtype, scheme] =
            <[TokenStream; 2]>::try_from(pair.items).map_err(|_| Error::new(pair.span, rule))?;
        pairs.push((plain(dtype, "E4m3")?, plain(scheme, "W4")?));
    }
    Ok(Exceptions { key, pairs })
}

/// What stands between delimiters, cut at the commas.
struct Elements {
    span: Span,
    items: Vec<TokenStream>,
}

fn elements(input: ParseStream<'_>, delimiter: Delimiter, rule: &str) -> Result<Elements> {
    let group = match input.parse() {
        Ok(TokenTree::Group(group)) if group.delimiter() == delimiter => group,
        Ok(other) => return Err(Error::new_spanned(other, rule)),
        Err(error) => return Err(Error::new(error.span(), rule)),
    };
    let mut items = vec![TokenStream::new()];
    for token in group.stream() {
        match (&token, items.last_mut()) {
            (TokenTree::Punct(punct), _) if punct.as_char() == ',' => items.push(TokenStream::new()),
            (_, Some(item)) => item.extend([token]),
            (_, None) => {}
        }
    }
    items.pop_if(|last| last.is_empty());
    Ok(Elements { span: group.span(), items })
}

/// A member is a plain name, because it becomes a part of the name of an entry.
fn plain(element: TokenStream, example: &str) -> Result<Ident> {
    syn::parse2(element.clone()).map_err(|_| {
        Error::new_spanned(
            element,
            format!(
                "a member is the plain name of a type, because it becomes a part of the entry's name: import the type, and \
                 write `{example}`, for example"
            ),
        )
    })
}
