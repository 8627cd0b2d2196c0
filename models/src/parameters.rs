//! Lists the parameters of a module by their paths.

use burn::{
    module::{Module, ModuleVisitor, Param, ParamId},
    tensor::Tensor,
};

/// One parameter of a module.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Path in the module, such as `layers.0.attention.qkv`.
    pub path: String,
    /// Identity in burn, under which gradients are registered. It is new in every process.
    pub id: ParamId,
    /// Size in each dimension.
    pub shape: Vec<usize>,
    /// True if the parameter takes a gradient; never without autodiff.
    pub trained: bool,
    /// Values, flat, without autodiff.
    pub values: Tensor<1>,
}

/// Lists all float parameters of `module`, in the order of its fields.
pub fn parameters<M: Module>(module: &M) -> Vec<Parameter> {
    let mut collect = Collect::default();
    module.visit(&mut collect);
    collect.found
}

#[derive(Default)]
struct Collect {
    path: Vec<String>,
    found: Vec<Parameter>,
}

impl ModuleVisitor for Collect {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.val();
        let trained = tensor.is_require_grad();
        let tensor = if tensor.is_autodiff() { tensor.inner() } else { tensor };
        let shape = tensor.dims().to_vec();
        let values = tensor.reshape([shape.iter().product::<usize>()]);
        let path = self.path.join(".");
        self.found.push(Parameter { path, id: param.id, shape, trained, values });
    }

    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }
}
