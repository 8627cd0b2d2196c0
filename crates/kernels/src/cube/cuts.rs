//! Boxes into which a 16-bit matmul is split on an NVIDIA card, and the kernel of cubek that computes them.
//!
//! The split depends only on the sizes and on the device's features, and nothing is measured while a program runs: the
//! same matmul is computed by the same kernel in every process, so equal runs are equal on a GPU too. The rules are
//! those that were fastest on an H200, among 41 to 81 splits of each of 18 shapes of models (2026-11-27).
//!
//! What matters most is the memory layout of the factors. If neighbours along the sum are neighbours in memory, in both
//! factors, their tiles are loaded into the matrix units unchanged, and the same split is 1.7 to 3.3 times as fast as
//! if one has to be transposed while it is loaded. Transposing it in memory first is cheap compared with a large
//! matmul.

use std::num::NonZeroUsize;

use cubecl::{
    client::Client,
    features::WgmmaConfig,
    tile::{launch::Refusal, space::CubeOrder},
};
use cubek::{
    matmul::kernels::{
        CubeStagedMatmulRoutine, CubeStagedMatmulRoutineSettings, MatmulRoutine,
        tensor::{PlainTensor, StoredTensor},
    },
    microkernel::matmul::{
        cube::{
            CubeStagedDelivery, CubeStagedMicrokernelSettings, CubeStagedStore, MatmulPlaneLayout,
        },
        plane::{PlaneFragmentMicrokernelSettings, PlaneFragmentTransport},
    },
    std::{Hardware, Instructions, manual_mma, microkernel::StageRing},
};

use super::{
    columns::{across, in_rows, lies_in_rows},
    *,
};

/// Minimum columns of a matmul, or its rows, for which it pays to transpose the other factor in memory. A number that
/// is transposed is read and written once, and then multiplied this often.
const TURNED: usize = 512;

/// Numbers of 16 bits in the 16 bytes that tensor copies move at least.
const TOGETHER: usize = 8;

/// Assumed multiprocessors of a device that does not report their number.
const WORKERS: u32 = 32;

/// Computes `x · y` into `out`, if this file knows the device and the factors. Matrices may be transposed.
pub(super) fn multiply(x: &Buffer, y: &Buffer, out: &Buffer) -> bool {
    let Some(factors) = Factors::new(x, y) else { return false };
    // A split that the device can't compute is refused before anything is compiled. A copy that these matrices don't
    // allow becomes a slower one.
    factors.ways().into_iter().any(|way| factors.launch(way, out))
}

/// Computes `x · y` into `out` in one way.
pub(super) fn multiply_in(
    way: CubeStagedMatmulRoutineSettings,
    x: &Buffer,
    y: &Buffer,
    out: &Buffer,
) -> bool {
    Factors::new(x, y).is_some_and(|factors| factors.launch(way, out))
}

/// Returns splits for a bench to compare with the best one. Some may be refused.
pub(super) fn alternatives(x: &Buffer, y: &Buffer) -> Vec<CubeStagedMatmulRoutineSettings> {
    Factors::new(x, y).map_or_else(Vec::new, |factors| factors.engine.alternatives(factors.along))
}

/// The factors of a matmul, as the kernels read them.
struct Factors {
    hardware: Hardware,
    engine: Engine,
    client: Client,
    x: PlainTensor,
    y: PlainTensor,
    /// Rows and columns of the result.
    shape: [usize; 2],
    /// Whether neighbours along the sum are neighbours in memory in both factors.
    along: bool,
}

impl Factors {
    /// Transposes the factors in memory if that pays.
    fn new(x: &Buffer, y: &Buffer) -> Option<Self> {
        let hardware = Hardware::from_client(&x.client);
        let engine = Engine::of(&hardware, format(x))?;
        let client = x.client.clone();
        let [rows, inner] = x.meta.shape().dims::<2>();
        let columns = y.meta.shape()[1];

        let mut x = x.clone();
        let mut y = across(y.clone());
        let turns_x = !lies_in_rows(&x);
        let turns_y = !lies_in_rows(&y);
        // Having only one factor along the sum gains nothing.
        let pays = (!turns_x || columns >= TURNED) && (!turns_y || rows >= TURNED);

        let width = inner.next_multiple_of(TOGETHER);
        if engine.warpgroups && pays && (width == inner || (turns_x && turns_y)) {
            x = if turns_x { in_rows(x, width) } else { x };
            y = if turns_y { in_rows(y, width) } else { y };
        }

        let along = lies_in_rows(&x) && lies_in_rows(&y);
        let plain = |it: Buffer| {
            let format = format(&it);
            PlainTensor::new(it.binding(), format)
        };
        let [x, y] = [x, across(y)].map(plain);
        Some(Factors { hardware, engine, client, x, y, shape: [rows, columns], along })
    }

    fn ways(&self) -> Vec<CubeStagedMatmulRoutineSettings> {
        let workers = self.hardware.workers().unwrap_or(WORKERS) as usize;
        self.engine.ways(self.shape, self.along, workers)
    }

    /// Returns false if the device refuses this way.
    fn launch(&self, way: CubeStagedMatmulRoutineSettings, out: &Buffer) -> bool {
        let [x, y] = [&self.x, &self.y].map(|it| StoredTensor::Plain(it.clone()));
        let out = PlainTensor::new(out.clone().binding(), format(out));
        let launched: Result<(), Refusal> =
            CubeStagedMatmulRoutine.launch_into(&self.hardware, &self.client, x, y, out, &way);
        launched.is_ok()
    }
}

/// Which instruction a device multiplies with, and which copy loads its numbers.
#[derive(Clone, Copy, Debug)]
struct Engine {
    /// Rows, columns and inner numbers that an instruction of a plane multiplies.
    instruction: [usize; 3],
    /// Whether four planes multiply together, from shared memory, which tensor copies fill (Hopper).
    warpgroups: bool,
}

impl Engine {
    /// Returns `None` if the device has no matrix units for the format, or none whose numbers arrive while it
    /// multiplies: by tensor copies, or by `cp.async`, which cubecl's compiler with LLVM does not have.
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

    /// Returns the splits of a matmul with this many rows and columns, the best first. `along` is true if neighbours
    /// along the sum are neighbours in memory in both factors.
    ///
    /// Large boxes read the least, which is worth some idle multiprocessors.
    fn ways(
        &self,
        [rows, columns]: [usize; 2],
        along: bool,
        workers: usize,
    ) -> Vec<CubeStagedMatmulRoutineSettings> {
        let boxes = |[down, across]: [usize; 2]| rows.div_ceil(down) * columns.div_ceil(across);
        let mut ways = Vec::new();
        if along && self.warpgroups {
            ways.push(if 4 * boxes([128, 256]) >= 3 * workers {
                self.of_warpgroups(2, 256)
            } else if boxes([64, 128]) >= workers {
                self.of_warpgroups(1, 128)
            } else {
                self.of_planes([64, 128], [2, 4], CubeStagedDelivery::Tma)
            });
        }

        // Without warpgroups, the boxes that tensor copies load were not tried on any card, and smaller ones give wrong
        // results (known defects, in the book).
        let size = if boxes([128, 128]) >= workers { [128, 128] } else { [64, 64] };
        ways.push(self.of_planes(size, [2, 2], CubeStagedDelivery::AsyncCopy));
        ways
    }

    /// Returns splits of every kind that gives right results. `along` is as in [`Engine::ways`].
    fn alternatives(&self, along: bool) -> Vec<CubeStagedMatmulRoutineSettings> {
        let mut ways = Vec::new();
        for stages in [3, 4, 6] {
            let ring = StageRing {
                stages_in_flight: NonZeroUsize::new(stages).expect("at least one stage"),
                ..StageRing::DOUBLE
            };
            let boxes = |size, planes| {
                let mut way = self.of_planes(size, planes, CubeStagedDelivery::Tma);
                way.microkernel = way.microkernel.ringed(ring);
                way
            };
            let groups = |groups, columns| {
                let mut way = self.of_warpgroups(groups, columns);
                way.microkernel = way.microkernel.ringed(ring);
                way
            };

            if along && self.warpgroups {
                for columns in [64, 128, 192, 256] {
                    ways.extend([groups(1, columns), groups(2, columns)]);
                }
                ways.extend([boxes([64, 128], [2, 4]), boxes([128, 128], [2, 4])]);
            }
        }

        let by_tensor_copy: Vec<_> = ways
            .iter()
            .map(|way| CubeStagedMatmulRoutineSettings {
                microkernel: CubeStagedMicrokernelSettings {
                    store: CubeStagedStore::Tma,
                    ..way.microkernel
                },
                ..*way
            })
            .collect();
        ways.extend(by_tensor_copy);
        ways
    }

    /// Splits a matmul into boxes of this many rows and columns, each for `planes` down and across.
    fn of_planes(
        &self,
        size: [usize; 2],
        planes: [usize; 2],
        delivery: CubeStagedDelivery,
    ) -> CubeStagedMatmulRoutineSettings {
        // Tensor copies are requested by a separate plane.
        let filling = usize::from(delivery == CubeStagedDelivery::Tma);
        let microkernel = self.plain(size, planes).ringed(StageRing::TRIPLE);
        CubeStagedMatmulRoutineSettings {
            microkernel: microkernel.filled(delivery, filling),
            cube_order: CubeOrder::SwizzleRow(4),
        }
    }

    /// Splits a matmul into boxes for `groups` groups of four planes, each with 64 rows and `columns` columns.
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

    /// Splits a box for `planes` down and across, and a stage of 64 inner numbers: the 128 bytes by which memory is
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
