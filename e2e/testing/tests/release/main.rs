//! Tests of `make release` and `make publish` that need no build: small files stand for the programs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod documented;
mod packed;
mod packing;
mod publication;
mod registry;
mod signatures;
mod workflows;
