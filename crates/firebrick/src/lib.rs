//! Firebrick trains language models to reason, by reinforcement learning with verifiable rewards.
//!
//! This crate is the program and the one place where a recipe is read and things are built from
//! it.

pub mod recipe;
