//! Tests of configurations of verl and SkyRL as recipes. The files in `data` have the form of theirs, although we
//! wrote them.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

use std::{fs, path::Path};

use firebrick_core::config::DistillationLoss;
use firebrick_import::{Imported, Origin, import};
use firebrick_recipe::{
    Advantage, BaseType, Dynamic, LossKind, Recipe, RewardKind, Schedule, TeacherKind,
};

fn of(path: &str, text: &str) -> Imported {
    import(Path::new(path), text, &[], None).unwrap()
}

/// Translates a text into a recipe.
fn recipe(path: &str, text: &str) -> Recipe {
    Recipe::parse(Path::new("recipe.toml"), &of(path, text).text, &[]).unwrap().recipe
}

fn fixture(name: &str) -> Imported {
    of(name, &text(name))
}

fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    fs::read_to_string(path).unwrap()
}

#[test]
fn a_configuration_in_yaml() {
    insta::assert_snapshot!(fixture("verl.yaml").text);
}

#[test]
fn a_script_of_verl() {
    insta::assert_snapshot!(fixture("verl.sh").text);
}

#[test]
fn a_script_of_skyrl() {
    insta::assert_snapshot!(fixture("skyrl.sh").text);
}

/// A key that is left out has the other program's default, and not ours.
#[test]
fn nothing_said_is_their_default() {
    let verl = recipe("c.yaml", "actor_rollout_ref: {rollout: {n: 4}}");
    let dapo = |clip_ratio_high, dual_clip| LossKind::Dapo {
        clip_ratio_low: 0.2,
        clip_ratio_high,
        dual_clip,
    };
    assert_eq!(verl.loss.kind, dapo(0.2, Some(3.0)));
    assert_eq!((verl.sampling.prompts_per_step, verl.train.mini_batch), (1024, 1024));
    assert_eq!((verl.sampling.dynamic, verl.loss.kl.is_none()), (Dynamic::Off, true));
    assert_eq!((verl.eval.temperature, verl.optim.warmup_steps), (0.0, 0));
    assert_eq!((verl.checkpoint.keep, verl.optim.weight_decay), (0, 0.01));

    let skyrl = recipe("c.yaml", "generator: {n_samples_per_prompt: 4}");
    assert_eq!(skyrl.loss.kind, dapo(0.2, None));
    assert_eq!((skyrl.sampling.prompts_per_step, skyrl.train.mini_batch), (1024, 1024));
    assert_eq!(skyrl.loss.kl.map(|kl| kl.coef), Some(0.001));
    assert_eq!((skyrl.seed, skyrl.eval.every, skyrl.reward.wrong), (42, 5, 0.0));
}

#[test]
fn a_critic_comes_over_with_what_it_needs() {
    let verl = "algorithm: {adv_estimator: gae, lam: 0.9}\ncritic: {optim: {lr: 2e-5}}\n\
                actor_rollout_ref: {rollout: {n: 1}}\ntrainer: {critic_warmup: 3}";
    let recipe = recipe("c.yaml", verl);
    let gae = Advantage::Gae { gamma: 1.0, lambda: 0.9, normalise: true };
    assert_eq!(recipe.advantage, gae);
    assert_eq!((recipe.critic.lr, recipe.critic.clip), (Some(2e-5), Some(0.5)));
    // The third step is the first in which verl updates the policy.
    assert_eq!((recipe.critic.warmup_steps, recipe.rollout.group_size), (2, 1));
    assert_eq!(recipe.critic.coef, 1.0);

    // With another estimator the critic's keys mean nothing.
    let text = of("c.yaml", &verl.replace("gae", "grpo").replace("n: 1", "n: 2")).text;
    assert!(!text.contains("[critic]") && text.contains("critic.optim.lr, trainer"), "{text}");
}

/// Returns the remarks on a configuration, on one line.
fn remarks(text: &str) -> String {
    of("c.yaml", text).remarks.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn keys_of_a_critic_mean_nothing_only_without_one() {
    let verl = "actor_rollout_ref: {rollout: {n: 2}}\nalgorithm: {adv_estimator: gae}\n\
                critic: {ppo_epochs: 2, grad_clip: 0.5, ppo_mini_batch_size: 4, loss_agg_mode: x, \
                optim: {lr: 1e-5, weight_decay: 0.1, lr_warmup_steps: 5, betas: [0.9, 0.9]}}\ntrainer: {total_training_steps: 5}";
    let skyrl = "generator: {n_samples_per_prompt: 2}\n\
                 trainer: {max_training_steps: 5, algorithm: {advantage_estimator: gae}, critic_mini_batch_size: 4, critic: \
                 {optimizer_config: {lr: 1e-5, max_grad_norm: 0.5, num_warmup_steps: 5}}}";

    for (text, keys, lacking) in [(verl, "critic.", 7), (skyrl, "trainer.critic", 3)] {
        let with = remarks(text);
        assert!(with.contains(&format!("without a counterpart: {lacking};")), "{with}");
        assert!(with.contains("lr = 1e-5: This rate rises over `optim.warmup_steps`"), "{with}");

        let without = remarks(&text.replace("gae", "grpo"));
        assert!(without.contains("without a counterpart: 0;"), "{without}");
        assert_eq!(without.matches(keys).count(), lacking + 1, "{without}");
    }
}

#[test]
fn one_clip_ratio_stands_for_two() {
    for (bounds, expected) in [
        ("clip_ratio: 0.15", (0.15, 0.15)),
        ("clip_ratio: 0.15, clip_ratio_low: null, clip_ratio_high: null", (0.15, 0.15)),
        ("clip_ratio: 0.15, clip_ratio_high: 0.3", (0.15, 0.3)),
        ("clip_ratio_low: null", (0.2, 0.2)),
        ("clip_ratio_low: 0.1", (0.1, 0.2)),
    ] {
        let text = format!("actor_rollout_ref: {{rollout: {{n: 4}}, actor: {{{bounds}}}}}");
        let loss = recipe("c.yaml", &text).loss;
        assert_eq!(loss.kind.clip_ratios(), Some(expected), "{bounds}");
    }
}

/// A default of theirs may be that of our DAPO without being that of our other losses.
#[test]
fn every_loss_has_the_bounds_that_it_has_there() {
    for (mode, given, expected) in [
        ("vanilla", "", (0.2, 0.2)),
        ("gspo", "", (0.2, 0.2)),
        ("gspo", ", clip_ratio_low: 3e-4, clip_ratio_high: 4e-4", (3e-4, 4e-4)),
        ("cispo", ", clip_ratio_high: 0.28", (0.2, 0.28)),
        // No ratio is below 0, so these are no lower bound.
        ("cispo", ", clip_ratio_low: 10, clip_ratio_high: 0.2", (1.0, 0.2)),
        ("vanilla", ", clip_ratio_low: 1.5", (1.0, 0.2)),
    ] {
        let actor = format!("{{policy_loss: {{loss_mode: {mode}}}{given}}}");
        let text = format!("actor_rollout_ref: {{rollout: {{n: 4}}, actor: {actor}}}");
        assert_eq!(
            recipe("c.yaml", &text).loss.kind.clip_ratios(),
            Some(expected),
            "{mode}{given}"
        );
    }

    let kind = |text: &str| recipe("c.yaml", text).loss.kind;
    let verl = |actor: &str| {
        kind(&format!(
            "actor_rollout_ref: {{rollout: {{n: 4}}, actor: {{policy_loss: {{{actor}}}}}"
        ))
    };
    assert_eq!(
        verl("loss_mode: dppo_tv}, clip_ratio_low: 0.15, clip_ratio_high: 0.3, clip_ratio_c: 10.0"),
        LossKind::DppoTv { delta_low: 0.15, delta_high: 0.3, ratio_cap: 10.0 }
    );
    assert_eq!(
        verl("loss_mode: dppo_kl}, clip_ratio: 0.05, clip_ratio_low: null, clip_ratio_high: null"),
        LossKind::DppoKl { delta_low: 0.05, delta_high: 0.05, ratio_cap: 3.0 }
    );
    assert_eq!(
        verl("loss_mode: sapo}, tau_neg: 1.1"),
        LossKind::Sapo { tau_pos: 1.0, tau_neg: 1.1 }
    );

    let skyrl = |rest: &str| kind(&format!("trainer: {{algorithm: {{policy_loss_type: {rest}}}}}"));
    assert_eq!(skyrl("dppo"), LossKind::DppoTv { delta_low: 0.2, delta_high: 0.2, ratio_cap: 5e8 });
    assert_eq!(
        skyrl("dppo, dppo: {dppo_type: binary_kl, delta_low: 0.05, delta_high: 0.06}"),
        LossKind::DppoKl { delta_low: 0.05, delta_high: 0.06, ratio_cap: 5e8 }
    );
    assert_eq!(skyrl("sapo, sapo: {tau_neg: 2.0}"), LossKind::Sapo { tau_pos: 1.0, tau_neg: 2.0 });

    let skyrl = "trainer: {algorithm: {policy_loss_type: cispo}}";
    assert_eq!(recipe("c.yaml", skyrl).loss.kind.clip_ratios(), Some((1.0, 4.0)));

    let unbounded =
        "trainer: {algorithm: {policy_loss_type: cispo, cispo: {cispo_eps_clip_low: 1e9}}}";
    assert_eq!(recipe("c.yaml", unbounded).loss.kind.clip_ratios(), Some((1.0, 4.0)));
    assert!(remarks(unbounded).contains("1.0 is none here"), "{}", remarks(unbounded));
}

#[test]
fn a_distillation_has_a_teacher() {
    let verl = |rest: &str| {
        format!(
            "actor_rollout_ref: {{rollout: {{n: 4}}}}\ndistillation: {{enabled: true, teacher_models: \
             {{teacher_model: {{model_path: Qwen/Qwen3-8B}}}}, distillation_loss: {{{rest}}}}}"
        )
    };
    let both = verl("loss_mode: k1, use_policy_gradient: true, distillation_loss_coef: 0.5");
    let teacher = recipe("c.yaml", &both).teacher.unwrap();
    assert_eq!(
        teacher.kind,
        TeacherKind::Local { path: "Qwen/Qwen3-8B".into(), base: BaseType::Auto }
    );
    assert_eq!((teacher.weight, teacher.task_weight, teacher.max_log_ratio), (0.5, 1.0, None));
    assert!(!remarks(&both).contains("differentiated"), "{}", remarks(&both));

    let alone = verl("loss_mode: k3, use_task_rewards: false, loss_max_clamp: 10.0");
    let teacher = recipe("c.yaml", &alone).teacher.unwrap();
    assert_eq!(
        (teacher.weight, teacher.task_weight, teacher.max_log_ratio),
        (1.0, 0.0, Some(10.0))
    );
    let says = "no estimate of a divergence is differentiated";
    assert!(remarks(&alone).contains(says), "{}", remarks(&alone));

    let whole = verl("loss_mode: forward_kl_topk, topk: 64, loss_max_clamp: 10.0");
    let teacher = recipe("c.yaml", &whole).teacher.unwrap();
    assert_eq!((teacher.loss, teacher.max_log_ratio), (DistillationLoss::ForwardKl, None));
    assert!(!remarks(&whole).contains(says), "{}", remarks(&whole));
    assert_eq!(recipe("c.yaml", &alone.replace("enabled: true", "enabled: false")).teacher, None);
}

/// A recipe refuses settings without effect, so none of them may come over.
#[test]
fn settings_without_effect_stay_behind() {
    let verl = |rest: &str| format!("actor_rollout_ref: {{rollout: {{n: 4{rest}}}}}\n");
    let greedy = verl(", val_kwargs: {do_sample: false, temperature: 1.0, top_p: 0.7}");
    assert_eq!(recipe("c.yaml", &greedy).eval.top_p, 1.0);
    assert!(
        remarks(&greedy).contains("val_kwargs.top_p: held-out answers take the likeliest token")
    );

    let sampled = greedy.replace("do_sample: false", "do_sample: true");
    assert_eq!(recipe("c.yaml", &sampled).eval.top_p, 0.7);

    let skyrl = "generator: {eval_sampling_params: {temperature: 0.0, top_p: 0.7}}";
    assert_eq!(recipe("c.yaml", skyrl).eval.top_p, 1.0);

    for (factor, buffer) in [("", 0), (", penalty_factor: 0", 0), (", penalty_factor: 0.5", 9)] {
        let table = format!("reward_model: {{overlong_buffer: {{enable: true, len: 9{factor}}}}}");
        let text = verl("") + &table;
        assert_eq!(recipe("c.yaml", &text).reward.overlong.buffer, buffer, "{factor}");
    }
}

#[test]
fn a_learning_rate_rises_and_falls_as_it_does_there() {
    let optim = |settings: &str| {
        let text = format!(
            "actor_rollout_ref: {{rollout: {{n: 4}}, actor: {{optim: {{{settings}}}}}}}\n\
             trainer: {{total_training_steps: 50}}"
        );
        recipe("c.yaml", &text).optim
    };

    let risen = optim("lr_warmup_steps: 10, lr_scheduler_type: cosine, min_lr_ratio: 0.1");
    assert_eq!((risen.warmup_steps, risen.warmup_from_zero), (10, true));
    assert_eq!(risen.schedule, Schedule::Cosine { end_ratio: 0.1 });
    assert_eq!(optim("warmup_style: cosine").schedule, Schedule::Cosine { end_ratio: 0.0 });

    for settings in ["lr_scheduler_type: constant", "lr_warmup_steps: 50, warmup_style: cosine"] {
        assert_eq!(optim(settings).schedule, Schedule::Constant, "{settings}");
    }
    assert!(!optim("lr_warmup_steps: 0").warmup_from_zero);
}

#[test]
fn estimators_and_importance_weights_have_their_names() {
    let verl = |algorithm: &str| {
        let text = format!("actor_rollout_ref: {{rollout: {{n: 4}}}}\nalgorithm: {{{algorithm}}}");
        recipe("c.yaml", &text)
    };

    let advantage = verl("adv_estimator: reinforce_plus_plus_baseline").advantage;
    assert_eq!(advantage, Advantage::ReinforceBaseline);

    let weighed = |table: &str| verl(&format!("rollout_correction: {{{table}}}")).loss;
    assert_eq!(weighed("rollout_is: token").tis_cap, Some(2.0));
    assert_eq!(weighed("rollout_is: token, rollout_is_threshold: 3").tis_cap, Some(3.0));
    assert_eq!(weighed("rollout_is: sequence").tis_cap, None);
    assert_eq!(weighed("rollout_is: null").tis_cap, None);

    for (algorithm, cap) in [
        ("off_policy_correction: {tis_ratio_type: token}", Some(2.0)),
        ("off_policy_correction: {tis_ratio_type: sequence}", None),
        ("use_tis: true, tis_imp_ratio_cap: 1.5", Some(1.5)),
        ("use_tis: true", None),
        ("tis_imp_ratio_cap: 1.5", None),
    ] {
        let text = format!("trainer: {{algorithm: {{{algorithm}}}}}");
        assert_eq!(recipe("c.yaml", &text).loss.tis_cap, cap, "{algorithm}");
    }
}

/// A recipe may ask for as many prompts as the other program, in smaller rounds.
#[test]
fn the_cap_of_sampling_is_in_rounds() {
    for (data, cap, rounds) in [
        ("{train_batch_size: 512, gen_batch_size: 1536}", 10, 30),
        ("{train_batch_size: 256, gen_batch_size: 300}", 3, 4),
        ("{train_batch_size: 512, gen_batch_size: null}", 10, 10),
        ("{train_batch_size: 512, gen_batch_size: 0}", 10, 10),
        ("{gen_batch_size: 1536}", -1, 0),
        ("{train_batch_size: 512}", 7, 7),
    ] {
        let text = format!(
            "actor_rollout_ref: {{rollout: {{n: 4}}}}\ndata: {data}\nalgorithm: \
             {{filter_groups: {{enable: true, max_num_gen_batches: {cap}}}}}"
        );
        assert_eq!(recipe("c.yaml", &text).sampling.max_rounds, rounds, "{data}");
    }
}

#[test]
fn what_is_said_fits_the_value() {
    let verl = |rest: &str| remarks(&format!("actor_rollout_ref: {{rollout: {{n: 4}}}}\n{rest}"));
    let validated = |file: &str, n: usize| {
        remarks(&format!(
            "data: {{val_files: {file}}}\n\
             actor_rollout_ref: {{rollout: {{n: 4, val_kwargs: {{n: {n}}}}}}}"
        ))
    };

    assert!(validated("aime-2024.parquet", 1).contains("1 there is 32 here"));
    assert!(!validated("aime-2024.parquet", 4).contains("1 there is 32 here"));
    assert!(!validated("math.parquet", 1).contains("1 there is 32 here"));

    let filtered = |on: bool| verl(&format!("algorithm: {{filter_groups: {{enable: {on}}}}}"));
    assert!(
        filtered(true).contains("for the spread") && !filtered(false).contains("for the spread")
    );

    let skyrl = |kind: &str, masks: bool| {
        remarks(&format!(
            "trainer: {{algorithm: {{dynamic_sampling: {{type: {kind}}}}}}}\n\
             generator: {{apply_overlong_filtering: {masks}}}"
        ))
    };
    assert!(skyrl("filter", false).contains("Both look at rewards"));
    assert!(!skyrl("null", false).contains("Both look at rewards"));

    let counted = "count for the spread of their group there";
    assert!(skyrl("filter", true).contains(counted) && !skyrl("filter", false).contains(counted));

    let mode = |mode: &str| {
        remarks(&format!(
            "actor_rollout_ref: {{rollout: {{n: 4}}, actor: {{loss_agg_mode: {mode}, loss_scale_factor: 9}}}}"
        ))
    };

    let normed = mode("seq-mean-token-sum-norm");
    assert!(
        normed.contains("by the constant alone") && !normed.contains("micro-batch"),
        "{normed}"
    );
    assert!(mode("token-mean").contains("micro-batch"));

    let share = "actor_rollout_ref: {rollout: {n: 4}, actor: {ppo_epochs: 2, optim: {lr_warmup_steps_ratio: 0.1}}}";
    assert!(remarks(share).contains("at its default, 20"), "{}", remarks(share));
    assert!(remarks(share).contains("kl_stop = 1e9"));
}

#[test]
fn one_target_is_a_list_of_one() {
    for (targets, names) in
        [("q_proj", "[\"q_proj\"]"), ("[q_proj, v_proj]", "[\"q_proj\", \"v_proj\"]")]
    {
        let text = format!(
            "actor_rollout_ref: {{rollout: {{n: 4}}, model: {{lora_rank: 8, target_modules: {targets}}}}}"
        );
        let imported = of("c.yaml", &text);
        assert!(imported.text.contains(&format!("lora.targets = {names}")), "{}", imported.text);
    }
}

/// SkyRL and Firebrick have several ways to treat groups without spread, and ours have SkyRL's names.
#[test]
fn every_form_of_dynamic_sampling_comes_over() {
    for (settings, form) in [
        ("dynamic_sampling: {type: filter}", Dynamic::Filter),
        (
            "dynamic_sampling: {type: replace, min_replace_ratio: 0.5}",
            Dynamic::Replace { min_ratio: 0.5 },
        ),
        ("dynamic_sampling: {type: replace}", Dynamic::Replace { min_ratio: 0.3 }),
        ("dynamic_sampling: {type: null}", Dynamic::Off),
        ("zero_variance_filter: true", Dynamic::Drop),
    ] {
        let sampling =
            recipe("c.yaml", &format!("trainer: {{algorithm: {{{settings}}}}}")).sampling;
        assert_eq!(sampling.dynamic, form, "{settings}");
    }
}

#[test]
fn lines_and_arguments_count_as_a_script_does() {
    let path = Path::new("c.txt");
    let lines = "generator.n_samples_per_prompt=4\n+trainer.seed=5\n";
    let more = ["trainer.seed=7".to_owned(), "trainer.policy.optimizer_config.lr=1e-5".to_owned()];
    let imported = import(path, lines, &more, Some(Origin::Skyrl)).unwrap();

    let recipe = Recipe::parse(path, &imported.text, &[]).unwrap().recipe;
    assert_eq!((recipe.rollout.group_size, recipe.seed, recipe.optim.lr), (4, 7, Some(1e-5)));
}

/// Lists the keys of the scripts and of the guide that the book's table is for, each once.
#[test]
fn every_key_of_the_published_scripts_has_a_row() {
    let verl = "data: train_files val_files prompt_key truncation max_prompt_length max_response_length \
        gen_batch_size train_batch_size | actor_rollout_ref.rollout: n gpu_memory_utilization \
        tensor_model_parallel_size enable_chunked_prefill max_num_batched_tokens temperature top_p top_k \
        name log_prob_use_dynamic_bsz log_prob_max_token_len_per_gpu | \
        actor_rollout_ref.rollout.val_kwargs: temperature top_p top_k do_sample n | algorithm: \
        adv_estimator use_kl_in_reward | algorithm.kl_ctrl: kl_coef | algorithm.filter_groups: enable \
        max_num_gen_batches metric | actor_rollout_ref.actor: use_kl_loss kl_loss_coef clip_ratio_low \
        clip_ratio_high clip_ratio_c use_dynamic_bsz ppo_max_token_len_per_gpu ppo_mini_batch_size \
        entropy_coeff grad_clip loss_agg_mode use_token_level_loss ulysses_sequence_parallel_size | \
        actor_rollout_ref.actor.fsdp_config: param_offload optimizer_offload fsdp_size | \
        actor_rollout_ref.actor.optim: lr lr_warmup_steps weight_decay | actor_rollout_ref.ref: \
        log_prob_use_dynamic_bsz log_prob_max_token_len_per_gpu ulysses_sequence_parallel_size | \
        actor_rollout_ref.ref.fsdp_config: param_offload | actor_rollout_ref.model: path \
        use_remove_padding enable_gradient_checkpointing | actor_rollout_ref.model.override_config: \
        attention_dropout embd_pdrop resid_pdrop | reward_model: reward_manager | \
        reward_model.overlong_buffer: enable len penalty_factor log | \
        custom_reward_function.overlong_buffer: enable len penalty_factor | reward.reward_manager: name | \
        reward.reward_kwargs: max_resp_len | reward.reward_kwargs.overlong_buffer_cfg: enable len \
        penalty_factor | trainer: logger project_name experiment_name n_gpus_per_node nnodes \
        val_before_train test_freq save_freq total_epochs default_local_dir resume_mode";

    let skyrl = "data: train_data val_data | trainer.algorithm: advantage_estimator policy_loss_type \
        overlong_buffer_len overlong_buffer_penalty_factor eps_clip_low eps_clip_high loss_reduction \
        use_kl_loss clip_ratio_c | trainer.algorithm.overlong_buffer: len penalty_factor | \
        trainer.algorithm.dynamic_sampling: type max_sample_batches | generator: \
        apply_overlong_filtering batched n_samples_per_prompt eval_n_samples_per_prompt | \
        generator.inference_engine: enforce_eager num_engines tensor_parallel_size backend \
        run_engines_locally weight_sync_backend gpu_memory_utilization | generator.sampling_params: \
        temperature top_p max_generate_length | generator.eval_sampling_params: temperature top_p \
        max_generate_length | trainer.policy.model: path | trainer.policy: sequence_parallel_size | \
        trainer.placement: colocate_all policy_num_nodes policy_num_gpus_per_node ref_num_gpus_per_node | \
        trainer: strategy epochs update_epochs_per_batch train_batch_size policy_mini_batch_size \
        micro_forward_batch_size_per_gpu micro_train_batch_size_per_gpu ckpt_interval max_prompt_length \
        logger project_name run_name resume_mode max_ckpts_to_keep ckpt_path | trainer.eval: batch_size \
        before_train interval | trainer.policy.optimizer_config: lr num_warmup_steps weight_decay \
        max_grad_norm | environment: env_class";

    for (origin, published) in [(Origin::Verl, verl), (Origin::Skyrl, skyrl)] {
        let known: Vec<String> = origin.keys().map(|key| key.name).collect();
        for (index, name) in known.iter().enumerate() {
            assert!(!known[..index].contains(name), "two rows of {name}");
        }

        for table in published.split('|') {
            let (table, keys) = table.split_once(':').unwrap();
            for key in keys.split_whitespace() {
                let key = format!("{}.{key}", table.trim());
                assert!(known.contains(&key), "{}: no row of {key}", origin.name());
            }
        }
    }
}

/// A text in a configuration can't become another key of the recipe.
#[test]
fn a_name_stays_a_name() {
    let smuggled = r#"[reward]\nkind = 'command'\nprogram = ['true']\n#"#;
    for text in [
        format!("generator: {{chat_template_kwargs: {{\"a\\n{smuggled}\": 1}}}}"),
        format!(
            "generator: {{chat_template_kwargs: {{\"a = 1\\n{smuggled}\": 1, a: \"{smuggled}\"}}}}"
        ),
        format!("generator: {{\"x\\n{smuggled}\": \"y\\n{smuggled}\"}}"),
        format!("generator: {{max_turns: \"y\\n{smuggled}\"}}"),
        format!("trainer: {{run_name: \"y\\n{smuggled}\", seed: 1}}\ngenerator: {{batched: true}}"),
        format!("trainer: {{policy: {{model: {{path: \"y\\n{smuggled}\"}}}}}}"),
    ] {
        let reward = recipe(&format!("a\n{smuggled}.yaml"), &text).reward;
        assert!(matches!(reward.kind, Some(RewardKind::Gsm8k)), "{text}");
    }
}

/// A short text can stand for a long one, and a file can have any number of keys.
#[test]
fn several_files_are_several_data_sets() {
    let files = "actor_rollout_ref: {rollout: {n: 4}}\n\
                 data: {train_files: [gsm8k/gsm8k.parquet, a/x.parquet, b/x.parquet]}";
    let recipe = recipe("c.yaml", files);
    let names: Vec<String> =
        recipe.train_sources().iter().map(firebrick_recipe::TrainSource::name).collect();
    assert_eq!(names, ["gsm8k", "x", "x-3"]);
    assert!(recipe.train_sources().iter().all(|source| source.weight.is_none()));
}

#[test]
fn a_configuration_is_bounded_as_a_whole() {
    // Each of these is small as a file, and large with its references filled in.
    let list = |item: &str| format!("[{}]", [item; 10].join(", "));
    let mut laughs = format!("l0: {}\n", list("x"));
    for n in 1..10 {
        laughs += &format!("l{n}: {}\n", list(&format!("\"${{l{}}}\"", n - 1)));
    }

    let texts: String = (0..20_000).map(|n| format!("k{n}: ${{a}}\n")).collect();
    let texts = format!("a: {}\n{texts}", "x".repeat(9_000));
    let variables: String = (0..20_000).map(|n| format!("v{n}=$a\n")).collect();
    let variables = format!("a={}\n{variables}run trainer.seed=1\n", "x".repeat(32_000));
    let tables: String = (0..10_000).map(|n| format!("  k{n}: 1\n")).collect();
    let tables = format!("{}:\n{tables}", "k".repeat(1_000));

    for (path, text) in
        [("c.yaml", laughs), ("c.yaml", texts), ("c.sh", variables), ("c.yaml", tables)]
    {
        let outcome = import(Path::new(path), &text, &[], Some(Origin::Verl));
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("more than 4 MiB"), "{error}");
    }

    let long = format!("generator: {{unheard_of: {}}}", "x".repeat(100_000));
    let imported = of("c.yaml", &long);
    assert!(imported.text.len() < 10_000 && imported.text.contains('…'));
}

/// Tens of thousands of keys are looked up in an index, and not searched for one after the other.
#[test]
fn many_keys_do_not_take_long() {
    let begin = std::time::Instant::now();
    for table in ["data", "data.apply_chat_template_kwargs", "actor_rollout_ref.rollout.val_kwargs"]
    {
        let keys: String = (0..20_000).map(|n| format!("{table}.k{n}=$X\n")).collect();
        of("c.sh", &format!("run actor_rollout_ref.rollout.n=4\n{keys}"));
    }

    let dots = format!("run actor_rollout_ref.rollout.n=4 a{}=1\n", ".a".repeat(200_000));
    of("c.sh", &dots);
    assert!(begin.elapsed().as_secs() < 60, "{:?}", begin.elapsed());
}

/// verl's asynchronous trainer has no size of a step: it takes some mini-batches at a time.
#[test]
fn a_batch_of_0_is_as_many_prompts_as_are_trained_on_at_a_time() {
    let verl = |data: &str, rest: &str| {
        let text = format!(
            "data: {{{data}}}\n{rest}actor_rollout_ref: {{actor: {{ppo_mini_batch_size: 32}}, rollout: {{n: 4}}}}\n"
        );
        let recipe = recipe("c.yaml", &text);
        (recipe.sampling.prompts_per_step, recipe.train.mini_batch, recipe.train.steps)
    };

    let taken = "async_training: {require_batches: 4}\nrollout: {total_rollout_steps: 1000}\n";
    assert_eq!(verl("train_batch_size: 0", taken), (128, 128, 8));
    assert_eq!(verl("train_batch_size: 0", "").0, 32);
    assert_eq!(verl("train_batch_size: 256", taken).0, 256);
    // A mini-batch may be larger than a step there, and is then the step.
    assert_eq!(verl("train_batch_size: 8", "").1, 32);
}

/// A value that no recipe accepts is lost alone, without the import.
#[test]
fn one_value_does_not_cost_the_recipe() {
    for (rest, words) in [
        (
            "rollout: {n: 4, temperature: -1}",
            "leaves `rollout.temperature` at its default, because",
        ),
        ("rollout: {n: 4, top_p: 7}", "rollout.top_p = 7: "),
        ("rollout: {n: 4}, actor: {optim: {lr: fast}, grad_clip: -2}", "optim.lr = fast: "),
        ("rollout: {n: 4}, model: {path: ''}", "`model.path` is not a path there"),
        ("rollout: {n: 4}, model: {path: null}", "`model.path` is not a path there"),
    ] {
        let text = format!("data: {{train_batch_size: 64}}\nactor_rollout_ref: {{{rest}}}\n");
        assert_eq!(recipe("c.yaml", &text).sampling.prompts_per_step, 64, "{rest}");
        assert!(remarks(&text).contains(words), "{rest}: {}", remarks(&text));
    }

    let unknown =
        "data: {train_batch_size: 0}\nactor_rollout_ref: {actor: {ppo_mini_batch_size: null}}\n";
    assert!(remarks(unknown).contains("leaves `sampling.prompts_per_step` at its default"));
}

/// Every override of a script reaches the recipe or a remark.
#[test]
fn no_override_of_a_script_is_lost_in_silence() {
    let start = "run actor_rollout_ref.rollout.n=4";
    for (script, words) in [
        ("A='data.seed=1 x.y=2'\nrun $A", "x.y = 2"),
        ("A='x.y=1'\nA+=' x.z=2'\nrun $A", "x.z = 2"),
        ("A=(x.y=1)\nA+=(x.z=2)\nrun \"${A[@]}\"", "x.z = 2"),
        ("A='x.y=1 x.z=2'\neval \"run $A\"", "`x.z=…` stands in a text"),
        ("A='x.y=1'\nA='x.z=1'\nrun $A", "`x.y=…` stands in a text"),
        ("bash -c 'run x.y=1'", "`x.y=…` stands in a text"),
        ("run $MORE", "`${MORE}` is an argument whose value the script does not say"),
        ("run \"${MORE[@]}\"", "`${MORE[@]}` is an argument"),
        ("run $P.lr=1", "`${P}.lr=1` is an argument"),
        ("run $(cat more)", "`$(cat more)` is an argument"),
        ("run --config-name dapo", "`--config-name` names a configuration"),
        ("run trainer.experiment_name=a-$(date +%F)", "experiment_name = a-$(date +%F): "),
        ("run --config-path=conf", "`--config-path` names a configuration"),
        ("run actor_rollout_ref.rollout.top_k=$K", "rollout.top_k = ${K}: "),
        ("run algorithm.filter_groups.enable=$F", "filter_groups.enable = ${F}: "),
    ] {
        let imported = of("c.sh", &format!("{start}\n{script}\n"));
        let remarks = imported.remarks.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(remarks.contains(words), "{script}: {remarks}");
    }

    let quiet = of("c.sh", &format!("A=(x.y=1)\n[ -n \"$X\" ]\ncd $D\n{start} \"${{A[@]}}\" $@\n"));
    assert!(!quiet.remarks.contains("To be checked"), "{}", quiet.remarks);
}

/// Configurations are untrusted: whatever stands in one, it is translated or refused.
#[test]
fn no_text_makes_the_import_panic() {
    for name in ["verl.yaml", "verl.sh", "skyrl.sh"] {
        let text = text(name);
        let read = |text: &str| {
            if let Ok(imported) = import(Path::new(name), text, &[], Some(Origin::Verl)) {
                assert!(Recipe::parse(Path::new("r.toml"), &imported.text, &[]).is_ok());
            }
        };

        for at in (0..text.len()).step_by(37).filter(|&at| text.is_char_boundary(at)) {
            read(&text[..at]);
            for noise in ["\0", "\"", "${", "$((", "\n", "ü", "="] {
                read(&format!("{}{noise}{}", &text[..at], &text[at..]));
            }
        }
    }
}
