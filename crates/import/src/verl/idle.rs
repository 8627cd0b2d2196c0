//! verl's keys that have no effect here.

use crate::rows::{Group, Idle};

#[rustfmt::skip] // A table: a group to two lines or three.
pub(in super::super) static IDLE: &[Group] = &[
    // Model
    Group { why: Idle::Memory, table: "actor_rollout_ref.model", keys:
        "enable_gradient_checkpointing use_remove_padding enable_activation_offload use_liger \
         use_fused_kernels fused_kernel_options.* tiled_mlp.* use_shm use_efficient_resharding" },
    Group { why: Idle::Off, table: "actor_rollout_ref.model", keys:
        "external_lib trust_remote_code hf_config_path tokenizer_path exclude_modules lora.* mtp.*" },
    Group { why: Idle::Engine, table: "actor_rollout_ref", keys: "hybrid_engine" },
    Group { why: Idle::Cluster, table: "actor_rollout_ref", keys: "nccl_timeout" },

    // Data
    Group { why: Idle::Always, table: "data", keys: "filter_overlong_prompts" },
    Group { why: Idle::Off, table: "data", keys:
        "tokenizer reward_fn_key val_batch_size return_raw_input_ids return_raw_chat return_full_prompt \
         validation_shuffle trust_remote_code image_key video_key audio_key image_patch_size \
         return_multi_modal_inputs mm_processor_kwargs function_tool_path custom_cls.name" },
    Group { why: Idle::Memory, table: "data", keys:
        "use_shm dataloader_num_workers filter_overlong_prompts_workers" },

    // Sampling
    Group { why: Idle::Engine, table: "actor_rollout_ref.rollout", keys:
        "name mode dtype gpu_memory_utilization enforce_eager cudagraph_capture_sizes free_cache_engine \
         max_num_batched_tokens max_model_len max_num_seqs enable_chunked_prefill enable_prefix_caching \
         scheduling_policy load_format layered_summon disable_log_stats multi_stage_wake_up \
         skip_tokenizer_init engine_kwargs.* checkpoint_engine.* prompt_length response_length" },
    Group { why: Idle::Cluster, table: "actor_rollout_ref.rollout", keys:
        "tensor_model_parallel_size data_parallel_size expert_parallel_size pipeline_model_parallel_size \
         nnodes n_gpus_per_node disaggregation.*" },
    Group { why: Idle::Memory, table: "actor_rollout_ref.rollout", keys:
        "log_prob_use_dynamic_bsz log_prob_max_token_len_per_gpu log_prob_micro_batch_size \
         log_prob_micro_batch_size_per_gpu" },
    Group { why: Idle::Always, table: "actor_rollout_ref.rollout", keys: "calculate_log_probs logprobs_mode" },
    Group { why: Idle::Records, table: "actor_rollout_ref.rollout", keys: "trace.* prometheus.* profiler.*" },
    Group { why: Idle::Off, table: "actor_rollout_ref.rollout", keys: "multi_turn.* agent.*" },

    // Reward
    Group { why: Idle::Off, table: "reward_model", keys:
        "strategy num_workers model.* rollout.* micro_batch_size micro_batch_size_per_gpu max_length \
         use_dynamic_bsz forward_max_token_len_per_gpu ulysses_sequence_parallel_size \
         launch_reward_fn_async enable_resource_pool n_gpus_per_node nnodes" },
    Group { why: Idle::Off, table: "reward", keys:
        "num_workers reward_model.* reward_manager.* sandbox_fusion.* custom_reward_function.name" },
    Group { why: Idle::Off, table: "sandbox_fusion", keys: "*" },

    // Advantage and loss
    Group { why: Idle::Off, table: "algorithm", keys: "kl_penalty kl_ctrl.kl_coef kl_ctrl.* pf_ppo.*" },
    Group { why: Idle::Off, table: "actor_rollout_ref.actor", keys: "policy_loss.*" },
    Group { why: Idle::Memory, table: "critic", keys:
        "ppo_micro_batch_size ppo_micro_batch_size_per_gpu ppo_max_token_len_per_gpu forward_micro_batch_size \
         forward_micro_batch_size_per_gpu forward_max_token_len_per_gpu use_dynamic_bsz model.fsdp_config.* \
         fsdp.* model.enable_gradient_checkpointing model.use_remove_padding \
         model.enable_activation_offload" },
    Group { why: Idle::Cluster, table: "critic", keys:
        "strategy rollout_n enable ulysses_sequence_parallel_size megatron.* nccl_timeout" },
    Group { why: Idle::Records, table: "critic", keys: "checkpoint.* profiler.*" },
    Group { why: Idle::Off, table: "critic", keys:
        "model.external_lib model.trust_remote_code model.tokenizer_path" },
    Group { why: Idle::Off, table: "distillation", keys: "*" },

    // Updates
    Group { why: Idle::Off, table: "actor_rollout_ref.actor.optim", keys:
        "total_training_steps clip_grad optimizer_impl zero_indexed_step" },
    Group { why: Idle::Memory, table: "actor_rollout_ref.actor", keys:
        "use_dynamic_bsz ppo_max_token_len_per_gpu ppo_micro_batch_size ppo_micro_batch_size_per_gpu \
         fsdp_config.param_offload fsdp_config.optimizer_offload fsdp_config.* use_torch_compile \
         use_remove_padding use_fused_kernels entropy_from_logits_with_chunking \
         entropy_from_logits_chunk_size entropy_checkpointing pad_to_length use_prefix_grouper" },
    Group { why: Idle::Cluster, table: "actor_rollout_ref.actor", keys:
        "strategy ulysses_sequence_parallel_size fsdp_config.fsdp_size megatron.* rollout_n" },
    Group { why: Idle::Always, table: "actor_rollout_ref.actor", keys: "calculate_entropy data_loader_seed" },
    Group { why: Idle::Records, table: "actor_rollout_ref.actor", keys: "checkpoint.* profiler.*" },
    Group { why: Idle::Off, table: "actor_rollout_ref.actor", keys:
        "freeze_vision_tower calculate_sum_pi_squared router_replay.* qat.*" },
    Group { why: Idle::Memory, table: "actor_rollout_ref.ref", keys:
        "log_prob_use_dynamic_bsz log_prob_max_token_len_per_gpu fsdp_config.param_offload *" },
    Group { why: Idle::Cluster, table: "actor_rollout_ref.ref", keys: "ulysses_sequence_parallel_size" },

    // Run
    Group { why: Idle::Records, table: "trainer", keys:
        "project_name logger default_local_dir default_hdfs_dir resume_mode resume_from_path \
         log_val_generations rollout_data_dir validation_data_dir max_critic_ckpt_to_keep \
         del_local_ckpt_after_load remove_previous_ckpt_in_save esi_redundant_time" },
    Group { why: Idle::Cluster, table: "trainer", keys:
        "n_gpus_per_node nnodes balance_batch device ray_wait_register_center_timeout \
         use_legacy_worker_impl" },
    Group { why: Idle::Cluster, table: "rollout", keys: "nnodes n_gpus_per_node" },
    Group { why: Idle::Cluster, table: "", keys: "ray_kwargs.* ray_init.* transfer_queue.* hydra.* defaults" },
    Group { why: Idle::Records, table: "", keys: "global_profiler.*" },
];
