//! Do the pages of two tensors, each with a table of its own, share bytes? Asked when requests of several layouts are joined.

use super::{PageIds, PagedError, PagedTensor};

/// Refuses two tensors of the same pool whose pages may share bytes. A page is taken for all bytes from its first to its last, so tensors that interleave
/// page by page are let through, and tensors whose pages interleave byte by byte are not.
pub(super) fn pages_apart(first: &PagedTensor<'_>, second: &PagedTensor<'_>) -> Result<(), PagedError> {
    let pool = first.place().pool;
    if pool != second.place().pool || first.tokens() == 0 || second.tokens() == 0 {
        return Ok(());
    }
    let whole = |tensor: &PagedTensor<'_>| -> Result<(u64, u64), PagedError> {
        Ok((tensor.place().base, tensor.pool_bytes()?))
    };
    let ((start, end), (other_start, other_end)) = (whole(first)?, whole(second)?);
    if end <= other_start || other_end <= start {
        return Ok(());
    }
    let mut pages = pages(first)?;
    pages.extend(self::pages(second)?.into_iter().map(|(start, end, _)| (start, end, true)));
    pages.sort_unstable();
    // Pages of one tensor may interleave with each other, so the furthest end of either is what the other must stay behind.
    let mut ends = [0u64; 2];
    for (start, end, of_second) in pages {
        let (own, other) = (usize::from(of_second), usize::from(!of_second));
        if start < ends[other] {
            let (first, second) = (first.form().name.clone(), second.form().name.clone());
            let reason = format!("their pages both reach byte {start}; give each pages of its own");
            return Err(PagedError::Overlap { first, second, pool, reason });
        }
        ends[own] = ends[own].max(end);
    }
    Ok(())
}

/// Start and end of every page.
fn pages(tensor: &PagedTensor<'_>) -> Result<Vec<(u64, u64, bool)>, PagedError> {
    let (place, ids) = (tensor.place(), tensor.ids());
    if matches!(ids, PageIds::Device { .. }) {
        return Err(PagedError::DeviceIds);
    }
    tensor.table().check(place.pages, false)?;
    // One page of the pool takes what all take but for the steps between pages; `pool_bytes` fits, so all of it does.
    let page_bytes = tensor.pool_bytes()? - place.base - place.page_stride * place.pages.saturating_sub(1);
    let page = |entry| {
        let start = place.base + ids.get(entry).map_or(0, |id| id as u64) * place.page_stride;
        (start, start + page_bytes, false)
    };
    Ok((0..ids.len()).map(page).collect())
}
