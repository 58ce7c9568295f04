//! Tensors as they are: what a codec is too slow for, and what it is compared with.

use super::back::Reloading;
use super::kept::OffloadedSlice;
use super::out::Offloading;
use super::pump::copy_to_host;
use super::slices::Piece;
use super::{DeviceKv, Offloaded, Offloader, StreamHandle, lane};
use crate::cuda::driver_error;
use crate::{Error, FrameSpec, Result, Scheme, TensorSpec};
use cudarc::driver::result;
use std::sync::Arc;

/// Whether tensors are sent as they are.
pub(super) fn is_raw(spec: &FrameSpec) -> bool {
    !spec.tensors.is_empty() && spec.tensors.iter().all(|tensor| tensor.scheme == Scheme::Stored)
}

/// Where tensors lie, and the end.
pub(super) fn places(pieces: &[Piece]) -> (Vec<u64>, u64) {
    lane::places(pieces.iter().map(|piece| piece.bytes().end))
}

/// Every tensor as one piece, its elements as rows.
pub(super) fn pieces(spec: &FrameSpec) -> Result<Vec<Piece>> {
    let piece = |(tensor, of): (usize, &TensorSpec)| {
        Ok(Piece { tensor, rows: 0..of.elements()?, row_bytes: of.dtype.bytes() as u64 })
    };
    spec.tensors.iter().enumerate().map(piece).collect()
}

impl Offloader {
    /// Copies tensors on the stream of the caller: nothing is between them and the link. The copies are queued before anything that can wait is done: of
    /// a short one every microsecond shows.
    ///
    /// # Safety
    /// As [`Offloader::offload`].
    pub(super) unsafe fn offload_raw(
        &self,
        spec: &FrameSpec,
        addresses: &[u64],
        stream: StreamHandle,
    ) -> Result<Offloading> {
        let pieces = pieces(spec)?;
        let (places, bytes) = places(&pieces);
        let state = self.state(FrameSpec::default(), bytes)?;
        let block =
            self.pool.take("tensors as they are", bytes, self.options.patience, &[state.cancelled()])?;
        let at = block.address();
        let slice = OffloadedSlice { block: Arc::new(block), spec: None, pieces };
        self.cuda.bind()?;
        state.copies_from(stream)?;
        for ((piece, &place), &from) in slice.pieces.iter().zip(&places).zip(addresses) {
            let bytes = piece.bytes().end;
            if bytes != 0 {
                // SAFETY: by contract; the block is kept by the state, which waits.
                let queued = unsafe { copy_to_host(at + place, from, bytes, stream.raw()) };
                if queued.is_err() {
                    // The copies before may still write to the block.
                    let _ = self.cuda.context().synchronize();
                    queued?;
                }
            }
        }
        state.push(slice, None);
        state.queued(stream)?;
        state.is_of(spec);
        Ok(Offloading { state })
    }

    /// The way back.
    ///
    /// # Safety
    /// As [`Offloader::reload`].
    pub(super) unsafe fn reload_raw(
        &self,
        from: &Arc<Offloaded>,
        to: DeviceKv<'_>,
        stream: StreamHandle,
    ) -> Result<Reloading> {
        let DeviceKv::Tensors(addresses) = to else {
            return Err(Error::Unsupported {
                executor: "cuda".to_owned(),
                what: "pages for tensors that were offloaded as they are".to_owned(),
                instead: "tensors in one piece, or a scheme".to_owned(),
            });
        };
        let events = [self.events.mark(stream)?, self.events.take()?, self.events.take()?];
        for slice in &from.slices {
            let (places, _) = places(&slice.pieces);
            for (piece, &at) in slice.pieces.iter().zip(&places) {
                let (at, bytes) = (at as usize, piece.bytes().end as usize);
                if bytes == 0 {
                    continue;
                }
                // SAFETY: the slice is kept until the copy is over, the rest by contract; there is an address for every tensor.
                unsafe {
                    let bytes = &slice.block.as_slice()[at..at + bytes];
                    result::memcpy_htod_async(addresses[piece.tensor], bytes, stream.raw())
                }
                .map_err(driver_error("copying to the device"))?;
            }
        }
        Reloading::of_copies(events, from, &self.meters, stream)
    }
}
