//! Adapters on GPUs, joined by one launch for each of them.

use super::*;
use crate::AdapterFactors;

/// See [`crate::join_adapters`].
pub(crate) fn join(
    adapters: &[AdapterFactors],
    outputs: usize,
    compute: Compute,
    both_layouts: bool,
) -> Option<[[Tensor<2>; 2]; 2]> {
    let first_a = strided(&adapters.first()?.a)?;
    let inputs = first_a.meta.shape()[0];
    let ranks: usize = adapters.iter().map(|adapter| adapter.a.dims()[1]).sum();

    // A matrix in columns is the transposed one in rows. A missing one is replaced by one that is not written.
    let allocate = |shape: [usize; 2]| empty(&first_a, shape, products(compute));
    let [a, b] = [allocate([ranks, inputs]), allocate([outputs, ranks])];
    let [a_in_rows, b_in_rows] = if both_layouts {
        [allocate([inputs, ranks]), allocate([ranks, outputs])]
    } else {
        [(); 2].map(|()| allocate([1, 1]))
    };

    let mut first_rank = 0;
    for adapter in adapters {
        let [rank, width] = adapter.b.dims();
        join_adapter::launch(
            &first_a.client,
            units(rank * inputs.max(outputs)),
            dim(),
            wide(&adapter.a)?.into_buffer_arg(),
            wide(&adapter.b)?.into_buffer_arg(),
            a.clone().into_buffer_arg(),
            b.clone().into_buffer_arg(),
            a_in_rows.clone().into_buffer_arg(),
            b_in_rows.clone().into_buffer_arg(),
            inputs,
            outputs,
            ranks,
            rank,
            width,
            first_rank,
            adapter.first_output,
            adapter.scale as f32,
            both_layouts,
            format(&a),
        );
        first_rank += rank;
    }

    let [a, b] = [a, b].map(|matrix| tensor::<2>(matrix).transpose());
    Some(if both_layouts {
        [[a, tensor(a_in_rows)], [b, tensor(b_in_rows)]]
    } else {
        [[a.clone(), a], [b.clone(), b]]
    })
}

/// Writes the columns of an adapter's `a` and the rows of its `b`, in which the numbers of other maps' outputs are 0.
#[cube(launch)]
fn join_adapter<Y: Float>(
    a: &[f32],
    b: &[f32],
    all_a: &mut [Y],
    all_b: &mut [Y],
    a_in_rows: &mut [Y],
    b_in_rows: &mut [Y],
    inputs: usize,
    outputs: usize,
    ranks: usize,
    rank: usize,
    width: usize,
    first_rank: usize,
    first_output: usize,
    scale: f32,
    #[comptime] both_layouts: bool,
    #[define(Y)] _format: ElemType,
) {
    if ABSOLUTE_POS < rank * inputs {
        let (index, input) = (ABSOLUTE_POS / inputs, ABSOLUTE_POS % inputs);
        let number = Y::cast_from(a[input * rank + index]);
        all_a[(first_rank + index) * inputs + input] = number;
        if both_layouts {
            a_in_rows[input * ranks + first_rank + index] = number;
        }
    }

    if ABSOLUTE_POS < rank * outputs {
        let (index, output) = (ABSOLUTE_POS / outputs, ABSOLUTE_POS % outputs);
        let mut scaled = f32::new(0.0);
        if output >= first_output && output < first_output + width {
            scaled = b[index * width + output - first_output] * scale;
        }

        let number = Y::cast_from(scaled);
        all_b[output * ranks + first_rank + index] = number;
        if both_layouts {
            b_in_rows[(first_rank + index) * outputs + output] = number;
        }
    }
}
