//! KV in pages: where the elements of a request lie in the pools of a serving engine, and how they get into a frame and out of it.
//!
//! A request is 2 x layers tensors in pages that are scattered over pools, tens of thousands to millions of pieces. A frame has all of them in one piece,
//! so a sender posts one descriptor, and both sides may keep their pages as they like. Three things are kept apart:
//!
//! - the logical [`Form`] of a tensor, `[tokens, heads, dim]`, which is the order of elements in a frame and the same on both sides;
//! - its [`Place`] in a pool, by strides; [`KvLayout`] has those of vLLM, SGLang, FlashInfer and LMCache by name (`docs/layouts.md` draws them), and a [`RowMap`] cuts
//!   rows that mix formats into tensors;
//! - the [`PageTable`] of a request.
//!
//! Bound together they are a [`Paged`]: what [`Executor::encode_paged`](crate::Executor::encode_paged) reads and
//! [`Executor::decode_paged`](crate::Executor::decode_paged) writes. Each of its tensors comes down to [`Runs`], which is all that a kernel needs to know.
//! [`naive`] says what is right.
//!
//! ```
//! use splitzip_host::paged::{KvLayout, KvShape, PageIds, PageTable, VllmOrder};
//! use splitzip_host::{Cpu, Dtype, Executor, Flags, Frame, Scheme};
//!
//! # fn main() -> splitzip_host::Result<()> {
//! let shape = KvShape { layers: 1, pages: 8, page_tokens: 16, heads: 2, head_dim: 64, dtype: Dtype::Bf16 };
//! // 40 tokens of a request, in three of the eight blocks of vLLM's fused cache.
//! let from = KvLayout::vllm_fused(&shape, VllmOrder::Lbhnc)?.bind(PageTable::new(PageIds::I32(&[6, 1, 3]), 16, 40)?)?;
//! let pool: Vec<u8> = (0..65536u32).flat_map(|i| (0x3f80 + (i % 512) as u16).to_le_bytes()).collect();
//! let spec = from.spec(Scheme::W2x3, Flags::CHECKSUMS);
//! let mut frame = vec![0; spec.layout()?.max_frame_bytes as usize];
//! let bytes = Cpu::new().encode_paged(&spec, &[], &from, &[&pool], &mut frame)?;
//!
//! // Decoded into slots of SGLang's pools, which have no pages.
//! let shape = KvShape { pages: 100, page_tokens: 1, ..shape };
//! let slots: Vec<i64> = (0..40).map(|i| 99 - 2 * i).collect();
//! let to = KvLayout::sglang(&shape)?.bind(PageTable::new(PageIds::I64(&slots), 1, 40)?)?;
//! let (mut keys, mut values) = (vec![0; 25600], vec![0; 25600]);
//! Cpu::new().decode_paged(&Frame::parse(&frame[..bytes])?, None, &to, &mut [&mut keys, &mut values])?;
//! // The last head of token 39: from the end of block 3's half to slot 21.
//! assert_eq!(keys[21 * 256 + 128..][..128], pool[3 * 8192 + 4096 + 7 * 256..][..128]);
//! # Ok(())
//! # }
//! ```

mod apart;
mod error;
mod layouts;
pub mod naive;
mod pages;
mod place;
mod request;
mod row_map;
mod runs;

use apart::pages_apart;
pub use error::PagedError;
pub use layouts::{KvLayout, KvShape, PageOrder, RowShape, VllmOrder};
pub use pages::{PageIds, PageTable};
pub use place::{Form, Place, PoolTensor};
pub use request::{Paged, PagedTensor};
pub use row_map::{RowField, RowMap};
pub use runs::{Runs, Shifts};
