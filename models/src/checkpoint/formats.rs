//! The number format of each tensor of a model.

use std::collections::BTreeMap;

use super::WeightDtype;

/// The number formats of a model's tensors, by their names in a Hugging Face folder. Files often keep a few small
/// tensors, such as norms, in f32 beside weights in bf16, and whoever wrote them had a reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Formats {
    most: WeightDtype,
    /// The tensors with another format.
    others: BTreeMap<String, WeightDtype>,
}

impl Formats {
    /// Gives all tensors the same format.
    pub fn all(dtype: WeightDtype) -> Self {
        Formats { most: dtype, others: BTreeMap::new() }
    }

    /// Gives the tensor `name` a format of its own.
    pub fn set(&mut self, name: &str, dtype: WeightDtype) {
        if dtype == self.most {
            self.others.remove(name)
        } else {
            self.others.insert(name.to_owned(), dtype)
        };
    }

    /// Returns the format of the tensor `name`.
    pub fn of(&self, name: &str) -> WeightDtype {
        self.others.get(name).copied().unwrap_or(self.most)
    }

    /// Returns the format of the tensors that have none of their own, which is that of most weights.
    pub fn most(&self) -> WeightDtype {
        self.most
    }

    /// Tells whether any tensor is rounded when it is written.
    pub fn rounds(&self) -> bool {
        let all = self.others.values().chain([&self.most]);
        all.into_iter().any(|dtype| *dtype != WeightDtype::F32)
    }
}
