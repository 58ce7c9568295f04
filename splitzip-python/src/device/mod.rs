//! Encoding and decoding in device memory: on the caller's stream, without waiting.

mod codec;
mod driver;
mod lanes;
mod memory;
mod paged;
mod verify;

pub use codec::DeviceCodec;
pub use driver::device_of;
pub use memory::{DeviceMemory, device_length, device_read, device_spec, devices};
pub use paged::DevicePagedCodec;
