//! Two policies that are no transformers, written with public items alone. They are sampled, trained and saved
//! as the decoder is.

#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, fs, ops::ControlFlow, path::Path, sync::Arc};

use burn::{
    module::{Module, Param},
    tensor::{DType, Device, FloatDType, Int, Tensor, TensorData, activation},
};
use firebrick_core::{Completion, Seed, SftExample, TokenId};
use firebrick_models::{
    AttentionOptions, CheckpointError, Compute, DecodeCache, KvCache, PackedMask, Padding,
    ParameterSet, PolicyModel, TokenBatch, arrange_rows, attention, head_logprobs, load_parameters,
    parameters, save_parameters,
};
use firebrick_rollout::{GroupRequest, LocalEngine, SampleOn, Sampling, stream};
use firebrick_tests::{
    close::{Tolerance, nested_pairs, pairs},
    tiny::{VOCABULARY, numbers, request},
};
use firebrick_train::learner::{AdamW, MicroBatching, OptimConfig, sft_step};
use safetensors::{Dtype, tensor::TensorView};

const LOGPROBS: Tolerance = Tolerance { absolute: 1e-4, relative: 0.0 };

const HIDDEN: usize = 24;

/// Gated linear recurrences. A mixed policy has one more layer after them: attention over all earlier tokens.
#[derive(Module, Debug)]
struct Recurrent {
    embedding: Param<Tensor<2>>, // [vocab, hidden]
    recurrences: Vec<Recurrence>,
    attention: Option<Attention>,
    head: Param<Tensor<2>>, // [vocab, hidden]
}

/// hₜ = aₜ·hₜ₋₁ + (1 − aₜ)·vₜ with aₜ = σ(xₜ·gate) and vₜ = xₜ·value, for each number by itself.
#[derive(Module, Debug)]
struct Recurrence {
    gate: Param<Tensor<2>>,
    value: Param<Tensor<2>>,
}

/// Attention with one head. It needs no positions, because the recurrences before it carry the order.
#[derive(Module, Debug)]
struct Attention {
    query: Param<Tensor<2>>,
    key: Param<Tensor<2>>,
}

/// Memory of decoding: a state for each recurrence, and the keys and values of the attention.
#[derive(Clone)]
struct Memory {
    states: Vec<Tensor<2>>,
    seen: Option<KvCache>,
}

/// Context that all layers share.
struct Context {
    present: Tensor<3>,       // [rows, tokens, 1]
    mask: Option<PackedMask>, // for attention over a batch
}

impl Recurrent {
    /// Makes three layers, the last of them attention if the policy is `mixed`.
    fn new(seed: u64, mixed: bool, device: &Device) -> Self {
        let seed = Seed::run(seed);
        let matrix = |name: &str, [rows, columns]: [usize; 2], deviation: f64| {
            let mut stream = seed.derive(name, &[]).stream();
            let value = |at| ((2.0 * stream.uniform_at(at) - 1.0) * deviation * 1.7) as f32;
            let values: Vec<f32> = (0..(rows * columns) as u64).map(value).collect();
            Param::from_data(TensorData::new(values, [rows, columns]), device)
        };
        let square = |name: &str| matrix(name, [HIDDEN, HIDDEN], (HIDDEN as f64).powf(-0.5));

        Recurrent {
            embedding: matrix("embedding", [VOCABULARY, HIDDEN], 1.0),
            recurrences: (0..if mixed { 2 } else { 3 })
                .map(|index| Recurrence {
                    gate: square(&format!("gate {index}")),
                    value: square(&format!("value {index}")),
                })
                .collect(),
            attention: mixed.then(|| Attention { query: square("query"), key: square("key") }),
            head: matrix("head", [VOCABULARY, HIDDEN], 0.3),
        }
    }

    /// Embeds `[rows, tokens]` as `[rows, tokens, hidden]`.
    fn embedded(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        let [rows, length] = tokens.dims();
        let tokens = tokens.reshape([rows * length]);
        self.embedding.val().select(0, tokens).reshape([rows, length, HIDDEN])
    }

    /// Runs one layer over `x` and its memory, and adds `x` to that memory.
    fn one(&self, index: usize, x: Tensor<3>, context: &Context, memory: &mut Memory) -> Tensor<3> {
        match self.recurrences.get(index) {
            Some(recurrence) => recurrence.forward(x, context, &mut memory.states[index]),
            None => self.attention.as_ref().unwrap().forward(x, context, memory.seen.as_mut()),
        }
    }

    /// Runs all layers over `x` and their memory, and returns the last token's hidden state.
    fn forward_cached(&self, x: Tensor<3>, context: &Context, memory: &mut Memory) -> Tensor<2> {
        let [rows, length, _] = x.dims();
        let all = 0..self.layers();
        let x = all.fold(x, |x, index| self.one(index, x, context, memory));
        self.finish(x.narrow(1, length - 1, 1)).reshape([rows, HIDDEN])
    }

    fn nothing(&self, rows: usize, seen: Option<KvCache>) -> Memory {
        let state = Tensor::zeros([rows, HIDDEN], &self.device());
        Memory { states: vec![state; self.recurrences.len()], seen }
    }
}

impl Recurrence {
    /// Padding leaves the state unchanged.
    fn forward(&self, x: Tensor<3>, context: &Context, state: &mut Tensor<2>) -> Tensor<3> {
        let [_, length, _] = x.dims();
        // For padding `kept` is 1, and so `taken` is 0.
        let passed = context.present.clone().neg().add_scalar(1.0);
        let kept = activation::sigmoid(product(x.clone(), &self.gate));
        let kept = kept * context.present.clone() + passed;
        let taken = kept.clone().neg().add_scalar(1.0) * product(x.clone(), &self.value);

        let mut states = Vec::with_capacity(length);
        for token in 0..length {
            let at = |all: &Tensor<3>| all.clone().narrow(1, token, 1).squeeze_dim::<2>(1);
            *state = at(&kept) * state.clone() + at(&taken);
            states.push(state.clone().unsqueeze_dim::<3>(1));
        }

        x + Tensor::cat(states, 1)
    }
}

impl Attention {
    fn forward(&self, x: Tensor<3>, context: &Context, seen: Option<&mut KvCache>) -> Tensor<3> {
        let [rows, length, width] = x.dims();
        let query = product(x.clone(), &self.query);
        let keys = product(x.clone(), &self.key);
        let flat = |x: &Tensor<3>| x.clone().reshape([rows * length, 1, width]);
        let query = flat(&query);
        let keys = flat(&keys);
        let values = flat(&x);

        let attended = match (&context.mask, seen) {
            (None, Some(seen)) => {
                seen.fill_and_attend(0, query, &keys, &values, None).reshape([rows, length, width])
            }
            (Some(mask), seen) => {
                if let Some(seen) = seen {
                    seen.fill(0, &keys, &values);
                }
                let options = AttentionOptions { window: None, scores: 1 << 12 };
                let out = attention(&query, &keys, &values, mask, options);
                out.output.reshape([rows, length, width])
            }
            (None, None) => unreachable!("decoding has a cache"),
        };

        x + attended
    }
}

fn product(x: Tensor<3>, matrix: &Param<Tensor<2>>) -> Tensor<3> {
    let [rows, length, width] = x.dims();
    x.reshape([rows * length, width]).matmul(matrix.val()).reshape([rows, length, width])
}

impl PolicyModel for Recurrent {
    type Cache = Memory;
    type Context = Context;

    fn device(&self) -> Device {
        self.embedding.val().device()
    }

    fn context(&self, batch: &TokenBatch) -> Context {
        let mask = self.attention.as_ref().map(|_| batch.mask());
        Context { present: batch.token_mask().unsqueeze_dim(2), mask }
    }

    fn embed(&self, batch: &TokenBatch) -> Tensor<3> {
        self.embedded(batch.tokens.clone())
    }

    fn layers(&self) -> usize {
        self.recurrences.len() + usize::from(self.attention.is_some())
    }

    fn layer(&self, index: usize, x: Tensor<3>, context: &Context) -> Tensor<3> {
        let rows = x.dims()[0];
        self.one(index, x, context, &mut self.nothing(rows, None))
    }

    fn finish(&self, x: Tensor<3>) -> Tensor<3> {
        x.clone() / x.square().mean_dim(2).add_scalar(1e-6).sqrt()
    }

    fn prefill(&self, batch: &TokenBatch) -> (Tensor<2>, Memory) {
        let rows = batch.tokens.dims()[0];
        let seen = |_: &Attention| KvCache::new(batch, &[[1, HIDDEN]], Compute::F32);
        let mut memory = self.nothing(rows, self.attention.as_ref().map(seen));
        let last = self.forward_cached(self.embed(batch), &self.context(batch), &mut memory);
        (last, memory)
    }

    fn decode(&self, tokens: Tensor<1, Int>, memory: &mut Memory) -> Tensor<2> {
        let rows = tokens.dims()[0];
        if let Some(seen) = &mut memory.seen {
            seen.append_slots();
        }
        let present = Tensor::ones([rows, 1, 1], &self.device());
        let context = Context { present, mask: None };
        self.forward_cached(self.embedded(tokens.reshape([rows, 1])), &context, memory)
    }

    fn head(&self) -> &Param<Tensor<2>> {
        &self.head
    }
}

impl DecodeCache for Memory {
    fn rows(&self) -> usize {
        self.states[0].dims()[0]
    }

    fn room(&self) -> usize {
        self.seen.as_ref().map_or(usize::MAX, KvCache::room)
    }

    fn arrange(self, keep: &[usize], newcomers: Option<(&Self, &[usize])>, room: usize) -> Self {
        let state = |(index, own): (usize, Tensor<2>)| {
            let others = newcomers.map(|(others, join)| (others.states[index].clone(), join));
            arrange_rows(own, keep, others)
        };
        Memory {
            states: self.states.into_iter().enumerate().map(state).collect(),
            seen: self.seen.map(|seen| {
                let others =
                    newcomers.and_then(|(others, join)| Some((others.seen.as_ref()?, join)));
                seen.arrange(keep, others, room)
            }),
        }
    }
}

/// Makes a policy without attention and one with it.
fn policies(device: &Device) -> [(&'static str, Recurrent); 2] {
    [("recurrent", Recurrent::new(1, false, device)), ("mixed", Recurrent::new(4, true, device))]
}

/// Makes requests with prompts of 1 to 37 tokens.
fn requests() -> Vec<GroupRequest> {
    let sampling = Arc::new(sampling());
    let request = |id: usize| GroupRequest {
        sampling: sampling.clone(),
        ..request(id as u64, 1 + (id * 17) % 38, 1 + id % 4)
    };
    (0..14).map(request).collect()
}

#[test]
fn what_is_sampled_has_the_log_probabilities_of_the_forward_pass() {
    for (name, policy) in policies(&Device::flex()) {
        let requests = requests();
        for max_sequences in [3, 64] {
            let completions = generate(&policy, &requests, max_sequences);

            let prompt = |id: u64| requests[id as usize].prompt.tokens.clone();
            let rows: Vec<(Vec<TokenId>, usize, &Completion)> = completions
                .iter()
                .map(|(&(id, _), completion)| {
                    let prompt = prompt(id);
                    let before = prompt.len();
                    ([prompt, completion.tokens.clone()].concat(), before, completion)
                })
                .collect();

            // The update pads on the right too.
            let texts: Vec<&[TokenId]> = rows.iter().map(|(row, ..)| row.as_slice()).collect();
            let batch = TokenBatch::new(&texts, Padding::Right, &policy.device());
            let hidden = policy.hidden(&batch);

            for (index, (row, before, completion)) in rows.iter().enumerate() {
                let written = completion.tokens.len();
                let hidden = hidden.clone().narrow(0, index, 1).narrow(1, before - 1, written);
                let labels: Vec<i32> = row[*before..].iter().map(|&token| token as i32).collect();
                let forward = head_logprobs(
                    &hidden.reshape([written, HIDDEN]),
                    &policy.lm_head(),
                    &Tensor::from_ints(labels.as_slice(), &policy.device()),
                    TEMPERATURE,
                    1000,
                );

                let forward = forward.logprobs.try_into_vec_as::<f32>().unwrap();
                let label = format!("{name}, {max_sequences} at once, row {index}");
                LOGPROBS.check(&label, pairs(&completion.logprobs, &forward));
            }
        }
    }
}

#[test]
fn completions_do_not_depend_on_their_neighbours() {
    for (name, policy) in policies(&Device::flex()) {
        let requests = requests();
        let mut alone = Completions::new();
        for request in &requests {
            alone.extend(generate(&policy, std::slice::from_ref(request), 64));
        }

        let lengths: Vec<usize> = alone.values().map(|it| it.tokens.len()).collect();
        // Otherwise no row would end before its neighbours, or the first block of keys would be enough.
        assert!(lengths.iter().any(|&length| length < 20) && lengths.contains(&80), "{lengths:?}");

        for max_sequences in [3, 7, 64] {
            let together = generate(&policy, &requests, max_sequences);
            let tokens = |all: &Completions| -> Vec<Vec<TokenId>> {
                all.values().map(|completion| completion.tokens.clone()).collect()
            };

            let label = format!("{name}, {max_sequences} at once");
            assert_eq!(tokens(&together), tokens(&alone), "{label}");
            let logprobs = |all: &Completions| -> Vec<Vec<f32>> {
                all.values().map(|completion| completion.logprobs.clone()).collect()
            };
            LOGPROBS.check(&label, nested_pairs(&logprobs(&together), &logprobs(&alone)));
        }

        // A stream writes the same completion, one token at a time.
        let mut heard = 0;
        let first = &requests[3];
        let streamed = stream(
            &policy,
            &GroupRequest { sampling: Arc::new(sampling()), ..first.clone() },
            512,
            SampleOn::Host,
            &mut |_, _| {
                heard += 1;
                ControlFlow::Continue(())
            },
        )
        .unwrap();

        assert_eq!(streamed.tokens, alone[&(first.prompt.id, 0)].tokens, "{name}");
        assert_eq!(heard, streamed.tokens.len());
    }
}

#[test]
fn padding_on_either_side_changes_nothing() {
    let device = Device::flex();
    for (name, policy) in policies(&device) {
        let rows =
            [request(1, 3, 1), request(2, 9, 1), request(3, 1, 1)].map(|it| it.prompt.tokens);
        let rows: Vec<&[TokenId]> = rows.iter().map(Vec::as_slice).collect();

        let hidden = |padding| {
            let batch = TokenBatch::new(&rows, padding, &device);
            assert_eq!(batch.padding(), padding);
            assert_eq!(batch.lengths(), [3, 9, 1]);
            let hidden = policy.hidden(&batch);

            let own = rows.iter().zip(batch.starts()).enumerate().map(|(row, (tokens, start))| {
                let own = hidden.clone().narrow(0, row, 1).narrow(1, start, tokens.len());
                own.reshape([tokens.len() * HIDDEN]).try_into_vec_as::<f32>().unwrap()
            });
            own.collect::<Vec<_>>()
        };

        LOGPROBS.check(name, nested_pairs(&hidden(Padding::Left), &hidden(Padding::Right)));
    }
}

#[test]
fn a_recurrence_learns() {
    let device = Device::flex().autodiff();
    for (name, mut policy) in policies(&device) {
        let examples: Vec<SftExample> = (0..4)
            .map(|id| {
                let prompt = request(id, 2 + id as usize, 1).prompt.tokens;
                SftExample::new(prompt, request(100 + id, 6, 1).prompt.tokens)
            })
            .collect();

        let mut optimizer = AdamW::new(OptimConfig::default());
        let micro_batching =
            MicroBatching { micro_batch_tokens: 24, max_logits: 100, ..MicroBatching::default() };

        let mut losses = Vec::new();
        for _ in 0..40 {
            let (moved, loss, _) =
                sft_step(policy, &mut optimizer, &examples, 1e-2, micro_batching).unwrap();
            policy = moved;
            losses.push(loss);
        }

        assert!(losses[39] < 0.2 * losses[0], "{name}: {losses:?}");
    }
}

#[test]
fn parameters_are_kept_to_the_bit() {
    let device = Device::flex();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.safetensors");
    let saved = Recurrent::new(1, true, &device);
    let other = Recurrent::new(2, true, &device);

    save_parameters(&saved, ParameterSet::All, &path).unwrap();
    let read = load_parameters(other, ParameterSet::All, &path).unwrap();
    assert_eq!(bits(&read), bits(&saved));

    // A copy for sampling may be rounded, but the file is f32 all the same.
    let rounded =
        Recurrent { head: saved.head.clone().map(|head| head.cast(DType::BF16)), ..saved };
    save_parameters(&rounded, ParameterSet::All, &path).unwrap();
    let read = load_parameters(Recurrent::new(2, true, &device), ParameterSet::All, &path).unwrap();
    assert_eq!(read.head.val().dtype(), FloatDType::F32.into());
    assert_eq!(bits(&read), bits(&rounded));

    let names: Vec<String> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names, ["policy.safetensors"]);
}

#[test]
fn what_is_frozen_is_neither_kept_nor_replaced() {
    let device = Device::flex().autodiff();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.safetensors");
    let frozen = |seed| {
        let policy = Recurrent::new(seed, false, &device);
        Recurrent { head: policy.head.clone().set_require_grad(false), ..policy }
    };

    save_parameters(&frozen(1), ParameterSet::Trained, &path).unwrap();
    let read = load_parameters(frozen(2), ParameterSet::Trained, &path).unwrap();
    let expected = |(mut own, other): (BTreeMap<String, Vec<u32>>, BTreeMap<String, Vec<u32>>)| {
        own.insert("head".into(), other["head"].clone());
        own
    };
    assert_eq!(bits(&read), expected((bits(&frozen(1)), bits(&frozen(2)))));

    let trained = |policy: &Recurrent| -> Vec<bool> {
        parameters(policy).iter().map(|parameter| parameter.trained).collect()
    };
    assert_eq!(trained(&read), trained(&frozen(2)));
    assert!(trained(&read).contains(&true) && trained(&read).contains(&false));

    let problem = problem_of(load_parameters(frozen(2), ParameterSet::All, &path));
    assert!(problem.contains("has no \"head\""), "{problem}");
}

#[test]
fn a_file_that_is_not_this_model_s_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.safetensors");
    let load = || {
        let policy = Recurrent::new(1, true, &Device::flex());
        problem_of(load_parameters(policy, ParameterSet::All, &path))
    };
    assert!(load().contains("policy.safetensors cannot be read"), "{}", load());

    let model = Recurrent::new(1, true, &Device::flex());
    let tensors: Stored = parameters(&model)
        .into_iter()
        .map(|parameter| {
            let values = parameter.values.try_into_vec_as::<f32>().unwrap();
            let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            (parameter.path, (parameter.shape, bytes))
        })
        .collect();
    let with = |change: &dyn Fn(&mut Stored)| {
        let mut tensors = tensors.clone();
        change(&mut tensors);
        write(&path, Dtype::F32, &tensors);
        load()
    };

    let gate = "recurrences.1.gate";
    let missing = with(&|tensors| drop(tensors.remove(gate)));
    assert!(missing.contains("has no \"recurrences.1.gate\""), "{missing}");
    let more = with(&|tensors| drop(tensors.insert("norm".into(), (vec![1], vec![0; 4]))));
    assert!(more.contains("has \"norm\", which this model lacks"), "{more}");
    let turned = with(&|tensors| tensors.get_mut("head").unwrap().0.reverse());
    assert!(turned.contains("F32 [24, 61], expected F32 [61, 24]"), "{turned}");
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let last = with(&|tensors| {
            let bytes = &mut tensors.get_mut(gate).unwrap().1;
            let end = bytes.len();
            bytes[end - 4..].copy_from_slice(&value.to_le_bytes());
        });
        assert!(last.contains("a NaN or an infinity in \"recurrences.1.gate\""), "{last}");
    }

    let halves = tensors.iter().map(|(name, (shape, bytes))| {
        (name.clone(), (shape.clone(), bytes[..bytes.len() / 2].to_vec()))
    });
    write(&path, Dtype::BF16, &halves.collect());
    assert!(load().contains("as BF16 [61, 24], expected F32"), "{}", load());

    // The file is cut off anywhere, or its header claims a length that no memory holds.
    save_parameters(&model, ParameterSet::All, &path).unwrap();
    let whole = fs::read(&path).unwrap();
    for cut in [0, 5, 8, 40, 400, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..cut]).unwrap();
        assert!(load().contains("is not a complete safetensors file"), "cut at {cut}: {}", load());
    }
    for length in [u64::MAX, 99_000_000, 3] {
        fs::write(&path, [&length.to_le_bytes()[..], &whole[8..]].concat()).unwrap();
        assert!(
            load().contains("is not a complete safetensors file"),
            "length {length}: {}",
            load()
        );
    }
    fs::write(&path, [&whole[..], &[0]].concat()).unwrap();
    assert!(load().contains("is not a complete safetensors file"), "{}", load());
}

/// Shape and bytes of each tensor, by its name.
type Stored = BTreeMap<String, (Vec<usize>, Vec<u8>)>;

fn problem_of(result: Result<Recurrent, CheckpointError>) -> String {
    result.err().unwrap().to_string()
}

fn write(path: &Path, dtype: Dtype, tensors: &Stored) {
    let views = tensors.iter().map(|(name, (shape, bytes))| {
        (name.as_str(), TensorView::new(dtype, shape.clone(), bytes).unwrap())
    });
    safetensors::serialize_to_file(views, None, path).unwrap();
}

fn bits(policy: &Recurrent) -> BTreeMap<String, Vec<u32>> {
    let bits = |values: Tensor<1>| -> Vec<u32> {
        let values = values.try_into_vec_as::<f32>().unwrap();
        values.into_iter().map(f32::to_bits).collect()
    };
    parameters(policy).into_iter().map(|it| (it.path, bits(it.values))).collect()
}

/// Completions by prompt and index in the group.
type Completions = BTreeMap<(u64, usize), Completion>;

const TEMPERATURE: f64 = 0.5;

fn sampling() -> Sampling {
    let top_k = 0;
    let top_p = 1.0;
    let stop = vec![3, 7, 23];
    Sampling { temperature: TEMPERATURE, top_k, top_p, max_completion_tokens: 80, stop }
}

fn generate(policy: &Recurrent, requests: &[GroupRequest], max_sequences: usize) -> Completions {
    let mut engine = LocalEngine::new(policy, numbers(), max_sequences, 512, SampleOn::Host);
    let groups = firebrick_rollout::generate(&mut engine, requests.to_vec(), &mut |_| {}).unwrap();
    let completions = groups.into_iter().flat_map(|group| {
        let id = group.prompt.id;
        let numbered = group.completions.into_iter().enumerate();
        numbered.map(move |(index, completion)| ((id, index), completion))
    });
    completions.collect()
}
