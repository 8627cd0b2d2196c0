//! Saves and loads the parameters of any module as one safetensors file.

use std::{
    collections::BTreeSet,
    io::Write as _,
    path::{Path, PathBuf},
};

use burn::{
    module::{Module, ModuleMapper, Param},
    tensor::{Tensor, TensorData},
};

use super::{
    CheckpointError, WeightDtype,
    file::TensorFile,
    save::{self, Planned},
};
use crate::{Parameter, parameters};

/// Which parameters of a module a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterSet {
    /// All parameters.
    All,
    /// Those that take a gradient. There are none without autodiff.
    Trained,
}

impl ParameterSet {
    fn of<M: Module>(self, module: &M) -> Vec<Parameter> {
        let mut parameters = parameters(module);
        parameters.retain(|parameter| self == ParameterSet::All || parameter.trained);
        parameters
    }
}

/// Writes the float parameters of any module into one safetensors file, in f32 and by their [paths](Parameter::path),
/// for an architecture without a Hugging Face folder.
///
/// At most 16 MB at a time are read from the device. The file gets its name only when all of it is on disk.
///
/// # Errors
/// Fails if the file cannot be written, a parameter cannot be read, or two have the same path.
pub fn save_parameters<M: Module>(
    module: &M,
    set: ParameterSet,
    path: &Path,
) -> Result<(), CheckpointError> {
    let parameters = set.of(module);

    let mut paths = BTreeSet::new();
    if let Some(twice) = parameters.iter().find(|parameter| !paths.insert(&parameter.path)) {
        let problem =
            format!("would hold two parameters as \"{}\"; give them different paths", twice.path);
        return Err(CheckpointError::Parameters { path: path.to_owned(), problem });
    }

    let planned = |Parameter { path, shape, .. }: &Parameter| Planned {
        name: path.clone(),
        shape: shape.clone(),
        dtype: DTYPE,
        index: None,
    };
    let planned: Vec<Planned> = parameters.iter().map(planned).collect();

    let failed = |source| CheckpointError::Write { path: path.to_owned(), source };
    save::write_whole(path, |file| {
        // All have one format, so they are stored in their order.
        let (header, _) = save::header(&planned);
        file.write_all(&header).map_err(failed)?;

        let parts = parameters.iter().flat_map(|parameter| save::parts(parameter, save::PART));
        let mut bytes = Vec::new();
        for (parameter, part) in parts {
            bytes.clear();
            DTYPE.narrow(&save::read(parameter, part)?, &mut bytes);
            file.write_all(&bytes).map_err(failed)?;
        }
        Ok(())
    })
}

/// Returns `module` with the parameters that [`save_parameters`] wrote, bit for bit, on the same device and taking a
/// gradient as before. A parameter that is not in `set` is left as it is.
///
/// The file may come from anybody, so its claims are checked before memory is taken for them.
///
/// # Errors
/// Fails if the file is missing or damaged, lacks a parameter of the module or has one that the module lacks. Fails
/// also if a parameter has another shape or type, or a value that is not finite: with such a weight no gradient would
/// be finite either.
pub fn load_parameters<M: Module>(
    module: M,
    set: ParameterSet,
    path: &Path,
) -> Result<M, CheckpointError> {
    let wrong = |problem| CheckpointError::Parameters { path: path.to_owned(), problem };
    let file = match TensorFile::open(path) {
        // The original error speaks of a model folder.
        Err(CheckpointError::Read { source, .. }) => {
            return Err(wrong(format!("cannot be read: {source}")));
        }
        other => other?,
    };

    let wanted: BTreeSet<String> =
        set.of(&module).into_iter().map(|parameter| parameter.path).collect();
    if let Some(name) = file.names().into_iter().find(|name| !wanted.contains(name)) {
        return Err(wrong(format!(
            "has {name:?}, which this model lacks: it is the file of another model"
        )));
    }

    let mut reader = Reader { file: &file, set, path: Vec::new(), failed: None };
    let module = module.map(&mut reader);
    match reader.failed {
        None => Ok(module),
        Some(error) => Err(error),
    }
}

const DTYPE: WeightDtype = WeightDtype::F32;

/// A mapper that replaces parameters by those of a file, until one fails.
struct Reader<'a> {
    file: &'a TensorFile,
    set: ParameterSet,
    path: Vec<String>,
    failed: Option<CheckpointError>,
}

impl Reader<'_> {
    /// Reads the values of the parameter at the reader's path.
    fn values(&self, shape: &[usize]) -> Result<Vec<f32>, CheckpointError> {
        let name = self.path.join(".");
        let wrong = |problem| {
            let path: PathBuf = self.file.path().to_owned();
            CheckpointError::Parameters { path, problem }
        };

        let info = self.file.info(&name).ok_or_else(|| {
            wrong(format!("has no {name:?}, which this model has: it is the file of another model"))
        })?;

        if info.dtype != DTYPE.in_file() || info.shape != shape {
            return Err(wrong(format!(
                "has {name:?} as {} {:?}, expected {} {shape:?}: it is the file of another model",
                info.dtype,
                info.shape,
                DTYPE.in_file(),
            )));
        }

        let mut values = Vec::with_capacity(shape.iter().product());
        if !self.file.read(info, DTYPE, &mut values)? {
            return Err(wrong(format!(
                "holds a NaN or an infinity in {name:?}, expected finite numbers: take an older file"
            )));
        }
        Ok(values)
    }
}

impl ModuleMapper for Reader<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let trained = param.val().is_require_grad();
        if self.failed.is_some() || (self.set == ParameterSet::Trained && !trained) {
            return param;
        }

        let shape = param.dims();
        match self.values(&shape) {
            Ok(values) => param.map(|tensor| {
                let values = TensorData::new(values, shape);
                Tensor::from_data(values, &tensor.device()).set_require_grad(trained)
            }),
            Err(error) => {
                self.failed = Some(error);
                param
            }
        }
    }

    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }
}
