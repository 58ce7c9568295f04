//! What gathering and scattering mean: head by head, by the formula of [`Place`](super::Place). Everything faster is compared with this.

use super::{Paged, PagedTensor};
use crate::format::write::check_size;
use crate::{Error, Result};

/// The bytes of tensor number `number` in the order in which they are encoded.
///
/// # Errors
/// Pools that do not hold the pages, pages that the pool does not have, a number that is none.
pub fn gather(paged: &Paged<'_>, number: usize, pools: &[&[u8]]) -> Result<Vec<u8>> {
    let sizes: Vec<u64> = pools.iter().map(|pool| pool.len() as u64).collect();
    paged.check_pools(&sizes, false)?;
    let tensor = tensor(paged, number)?;
    let pool = pools[tensor.place().pool];
    let mut out = Vec::new();
    for (start, end) in heads(tensor)? {
        out.extend(&pool[start..end]);
    }
    Ok(out)
}

/// Puts `bytes`, in the order in which they were encoded, where the elements of tensor number `number` lie.
///
/// # Errors
/// As [`gather`]; also for a page that is in the table twice, and another number of bytes than the tensor has.
pub fn scatter(paged: &Paged<'_>, number: usize, bytes: &[u8], pools: &mut [&mut [u8]]) -> Result<()> {
    let sizes: Vec<u64> = pools.iter().map(|pool| pool.len() as u64).collect();
    paged.check_pools(&sizes, true)?;
    let tensor = tensor(paged, number)?;
    check_size(format!("the bytes of {:?}", tensor.form().name), tensor.runs().bytes, bytes.len())?;
    let mut rest = bytes;
    for (start, end) in heads(tensor)? {
        let (head, behind) = rest.split_at(end - start);
        pools[tensor.place().pool][start..end].copy_from_slice(head);
        rest = behind;
    }
    Ok(())
}

fn tensor<'p, 'a>(paged: &'p Paged<'a>, number: usize) -> Result<&'p PagedTensor<'a>> {
    let count = paged.tensors().len() as u64;
    let found = paged.tensors().get(number);
    found.ok_or(Error::OutOfRange { what: "tensor", given: number as u64, count })
}

/// Where every head of every token starts and ends, in order.
fn heads(tensor: &PagedTensor<'_>) -> Result<Vec<(usize, usize)>> {
    let (form, place, table) = (tensor.form(), tensor.place(), tensor.table());
    let bytes = form.head_bytes()?;
    let mut heads = Vec::new();
    for token in table.first()..table.first() + table.tokens() {
        let page = table.ids().get(token / place.page_tokens).unwrap_or_default() as u64;
        for head in 0..form.heads {
            let start = place.base
                + page * place.page_stride
                + token % place.page_tokens * place.token_stride
                + head * place.head_stride;
            heads.push((start as usize, (start + bytes) as usize));
        }
    }
    Ok(heads)
}
