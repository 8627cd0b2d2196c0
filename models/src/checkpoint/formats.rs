//! The number format of each tensor of a model.

use std::collections::BTreeMap;

use super::WeightDtype;

/// Number formats of a model's tensors, by their names in a Hugging Face folder. Files often keep a few small tensors,
/// such as norms, in f32 next to weights in bf16, for a reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Formats {
    /// Format of all other tensors, which is that of most weights.
    common: WeightDtype,
    /// Tensors with another format.
    others: BTreeMap<String, WeightDtype>,
}

impl Formats {
    /// Makes the formats of a model whose tensors all have the same.
    pub fn all(dtype: WeightDtype) -> Self {
        Formats { common: dtype, others: BTreeMap::new() }
    }

    /// Sets the format of the tensor `name`.
    pub fn set(&mut self, name: &str, dtype: WeightDtype) {
        if dtype == self.common {
            self.others.remove(name)
        } else {
            self.others.insert(name.to_owned(), dtype)
        };
    }

    /// Returns the format of the tensor `name`.
    pub fn of(&self, name: &str) -> WeightDtype {
        self.others.get(name).copied().unwrap_or(self.common)
    }

    /// Returns the format of all tensors for which no other was set, which is that of most weights.
    pub fn most(&self) -> WeightDtype {
        self.common
    }

    /// Tells whether any tensor is rounded when it is written.
    pub fn rounds(&self) -> bool {
        let all = self.others.values().chain([&self.common]);
        all.into_iter().any(|dtype| *dtype != WeightDtype::F32)
    }
}
