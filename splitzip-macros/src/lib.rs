//! To be written.

mod expand;
mod parse;

use proc_macro::TokenStream;

/// See the crate.
#[proc_macro_attribute]
pub fn kernel(attribute: TokenStream, item: TokenStream) -> TokenStream {
    expand::kernel(attribute.into(), item.into()).into()
}
