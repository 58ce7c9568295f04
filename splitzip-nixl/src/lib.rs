pub use nixl_sys;
