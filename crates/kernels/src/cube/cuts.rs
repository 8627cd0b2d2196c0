//! The boxes into which a product of matrices in 16 bits is cut on an NVIDIA card, and the kernel of cubek's that
//! computes them.
//!
//! The cut follows from the sizes and from what the device offers, and nothing is measured while a program runs: the
//! same product is computed by the same kernel in every process, so equal runs are equal on a GPU too. The rules are
//! those that were fastest on an H200, among 41 to 81 cuts of each of 18 shapes of models (2026-11-27).
//!
//! The place of the factors in memory matters most. If neighbours along the sum are neighbours in memory, in both
//! factors, their tiles go from memory to the matrix units as they are, and the same cut is 1.7 to 3.3 times as fast as
//! if one has to be transposed on its way. Transposing it before, in memory, is cheap beside a large product.

use cubecl::{
    features::WgmmaConfig,
    tile::{launch::Refusal, space::CubeOrder},
};
use cubek::{
    matmul::kernels::{
        CubeStagedMatmulRoutine, CubeStagedMatmulRoutineSettings, MatmulRoutine,
        tensor::{PlainTensor, StoredTensor},
    },
    microkernel::matmul::{
        cube::{CubeStagedDelivery, CubeStagedMicrokernelSettings, MatmulPlaneLayout},
        plane::{PlaneFragmentMicrokernelSettings, PlaneFragmentTransport},
    },
    std::{Hardware, Instructions, manual_mma, microkernel::StageRing},
};

use super::{
    columns::{across, in_rows, lies_in_rows},
    *,
};

/// The columns of a product, or its rows, for which it pays to transpose the other factor in memory. A number that is
/// transposed is read and written once, and then multiplied so often.
const TURNED: usize = 512;

/// The numbers of 16 bits in the 16 bytes that tensor copies move at least.
const TOGETHER: usize = 8;

/// The multiprocessors of a device that does not tell how many it has.
const WORKERS: u32 = 32;

/// Computes `x · y` into `out`, if the device and the factors are of those that this file knows. Matrices may be
/// transposed.
pub(super) fn multiply(x: &Buffer, y: &Buffer, out: &Buffer) -> bool {
    let hardware = Hardware::from_client(&x.client);
    let Some(engine) = Engine::of(&hardware, format(x)) else { return false };
    let [rows, columns] = out.meta.shape().dims::<2>();
    let (mut x, mut y) = (x.clone(), across(y.clone()));
    let (turns_x, turns_y) = (!lies_in_rows(&x), !lies_in_rows(&y));
    // One factor alone along the sum gains nothing.
    let pays = (!turns_x || columns >= TURNED) && (!turns_y || rows >= TURNED);
    let inner = x.meta.shape()[1];
    let width = inner.next_multiple_of(TOGETHER);
    if engine.warpgroups && pays && (width == inner || (turns_x && turns_y)) {
        x = if turns_x { in_rows(x, width) } else { x };
        y = if turns_y { in_rows(y, width) } else { y };
    }
    let along = lies_in_rows(&x) && lies_in_rows(&y);
    let y = across(y);
    let client = x.client.clone();
    let [x, y, out] = [x, y, out.clone()].map(|it| {
        let format = format(&it);
        PlainTensor::new(it.binding(), format)
    });
    let launch = |settings: CubeStagedMatmulRoutineSettings| -> Result<(), Refusal> {
        let (x, y) = (StoredTensor::Plain(x.clone()), StoredTensor::Plain(y.clone()));
        let out = out.clone();
        CubeStagedMatmulRoutine.launch_into(&hardware, &client, x, y, out, &settings)
    };
    let workers = hardware.workers().unwrap_or(WORKERS) as usize;
    // A cut that the device can't compute is refused before anything is compiled. A copy that these matrices can't
    // have becomes a slower one.
    engine.ways([rows, columns], along, workers).into_iter().any(|way| launch(way).is_ok())
}

/// The instruction that a device multiplies with, and the copy that brings numbers to it.
#[derive(Clone, Copy, Debug)]
struct Engine {
    /// The rows, columns and inner numbers that an instruction of a plane multiplies.
    instruction: [usize; 3],
    /// Four planes multiply together, out of shared memory, which tensor copies fill (Hopper).
    warpgroups: bool,
}

impl Engine {
    /// Returns `None` if the device has no matrix units for the format, or none whose numbers come while it multiplies:
    /// by tensor copies, or by `cp.async`, which cubecl's compiler with LLVM does not have.
    fn of(hardware: &Hardware, format: ElemType) -> Option<Self> {
        let sum = ElemType::Float(FloatKind::F32);
        let shape = manual_mma(hardware).for_triple(format, format, sum).largest()?;
        let of_warpgroup =
            |it: &WgmmaConfig| (it.elems.a, it.elems.b, it.elems.cd) == (format, format, sum);
        let wgmma = &hardware.properties.features.matmul.wgmma;
        let warpgroups = hardware.bulk_tensor_copy() && wgmma.iter().any(of_warpgroup);
        let instruction = [shape.m, shape.n, shape.k].map(|side| side as usize);
        let fits = warpgroups || hardware.unit_async_copy();
        fits.then_some(Engine { instruction, warpgroups })
    }

    /// Returns the cuts of a product of so many rows and columns, the best first. It lies `along` if neighbours along
    /// the sum are neighbours in memory in both factors.
    ///
    /// Large boxes read the least. They are worth some idle multiprocessors.
    fn ways(
        &self,
        [rows, columns]: [usize; 2],
        along: bool,
        workers: usize,
    ) -> Vec<CubeStagedMatmulRoutineSettings> {
        let boxes = |[down, across]: [usize; 2]| rows.div_ceil(down) * columns.div_ceil(across);
        let mut ways = Vec::new();
        if along && self.warpgroups {
            ways.push(match 4 * boxes([128, 256]) >= 3 * workers {
                true => self.of_warpgroups(2, 256),
                false if boxes([64, 128]) >= workers => self.of_warpgroups(1, 128),
                false => self.of_planes([64, 128], [2, 4], CubeStagedDelivery::Tma),
            });
        }
        // Without warpgroups the boxes that tensor copies bring were tried on no card, and smaller ones come out
        // wrong (the page on known defects).
        let size = if boxes([128, 128]) >= workers { [128, 128] } else { [64, 64] };
        ways.push(self.of_planes(size, [2, 2], CubeStagedDelivery::AsyncCopy));
        ways
    }

    /// Cuts a product into boxes of so many rows and columns, each for `planes` down and across.
    fn of_planes(
        &self,
        size: [usize; 2],
        planes: [usize; 2],
        delivery: CubeStagedDelivery,
    ) -> CubeStagedMatmulRoutineSettings {
        // Tensor copies are asked for by a plane of their own.
        let filling = usize::from(delivery == CubeStagedDelivery::Tma);
        let microkernel = self.plain(size, planes).ringed(StageRing::TRIPLE);
        CubeStagedMatmulRoutineSettings {
            microkernel: microkernel.filled(delivery, filling),
            cube_order: CubeOrder::SwizzleRow(4),
        }
    }

    /// Cuts a product into boxes for so many groups of four planes, each with 64 rows and so many columns.
    fn of_warpgroups(&self, groups: usize, columns: usize) -> CubeStagedMatmulRoutineSettings {
        // An instruction takes a multiple of 8 columns.
        let plane = PlaneFragmentMicrokernelSettings::grid(1, columns / 8, 4);
        let layout = MatmulPlaneLayout::new(groups, 1);
        CubeStagedMatmulRoutineSettings {
            microkernel: CubeStagedMicrokernelSettings::boxed(plane, layout)
                .ringed(StageRing::TRIPLE)
                .filled(CubeStagedDelivery::Tma, 1)
                .through(PlaneFragmentTransport::Wgmma),
            cube_order: CubeOrder::RowMajor,
        }
    }

    /// Cuts a box for `planes` down and across, and a stage of 64 inner numbers: the 128 bytes by which memory is
    /// read.
    fn plain(
        &self,
        [rows, columns]: [usize; 2],
        [down, across]: [usize; 2],
    ) -> CubeStagedMicrokernelSettings {
        let [m, n, k] = self.instruction;
        let plane = PlaneFragmentMicrokernelSettings::grid(
            (rows / down / m).max(1),
            (columns / across / n).max(1),
            (64 / k).max(1),
        );
        CubeStagedMicrokernelSettings::boxed(plane, MatmulPlaneLayout::new(down, across))
            .through(PlaneFragmentTransport::Mma)
    }
}
