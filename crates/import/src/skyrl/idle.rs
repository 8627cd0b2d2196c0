//! SkyRL's keys that have no effect here.

use crate::rows::{Group, Idle};

#[rustfmt::skip] // A table: a group to two lines or three.
pub(in super::super) static IDLE: &[Group] = &[
    // Model and data
    Group { why: Idle::Engine, table: "trainer.policy.model.lora", keys: "lora_sync_path max_loras max_cpu_loras" },
    Group { why: Idle::Off, table: "trainer.policy.model", keys: "expert_mxfp8.* fake_int4_qat.*" },
    Group { why: Idle::Off, table: "generator", keys: "chat_template.source" },
    Group { why: Idle::Memory, table: "data", keys: "dataloader.*" },

    // Sampling
    Group { why: Idle::Engine, table: "generator.inference_engine", keys:
        "backend enforce_eager gpu_memory_utilization num_engines run_engines_locally \
         tensor_parallel_size weight_sync_backend *" },
    Group { why: Idle::Engine, table: "generator", keys:
        "batched backend run_engines_locally num_inference_engines async_engine model_name model_dtype \
         weight_sync_backend weight_transfer_threshold_cuda_ipc_GB external_proxy_url \
         external_server_urls inference_engine_tensor_parallel_size \
         inference_engine_pipeline_parallel_size inference_engine_expert_parallel_size \
         inference_engine_data_parallel_size vllm_v1_disable_multiproc enable_prefix_caching \
         enable_chunked_prefill max_num_batched_tokens max_num_seqs enforce_eager fully_sharded_loras \
         enable_ray_prometheus_stats gpu_memory_utilization remote_inference_engine_urls \
         enable_http_endpoint http_endpoint_host http_endpoint_port served_model_name engine_init_kwargs.* \
         override_existing_update_group use_cache_salt" },
    Group { why: Idle::Always, table: "generator", keys: "sampling_params.logprobs eval_sampling_params.logprobs" },
    Group { why: Idle::Off, table: "generator", keys:
        "use_conversation_multi_turn append_eos_token_after_stop_str_in_multi_turn merge_stepwise_output" },

    // Reward, advantage and loss
    Group { why: Idle::Off, table: "environment", keys: "skyrl_gym.*" },
    Group { why: Idle::Off, table: "trainer.algorithm", keys:
        "kl_ctrl.* value_head_prefix \
         off_policy_correction.* clip_cov.* kl_cov.*" },

    // Updates
    Group { why: Idle::Memory, table: "trainer", keys:
        "micro_forward_batch_size_per_gpu micro_train_batch_size_per_gpu max_tokens_per_microbatch \
         gradient_checkpointing gradient_checkpointing_use_reentrant use_sample_packing \
         remove_microbatch_padding flash_attn bf16 eval_batch_size eval.batch_size logprobs_chunk_size \
         vocab_entropy_chunk_size vocab_entropy_chunk_memory_mb use_expandable_segments" },
    Group { why: Idle::Memory, table: "trainer.policy", keys:
        "fsdp_config.* optimizer_config.offload_after_step use_torch_compile record_memory" },
    Group { why: Idle::Cluster, table: "trainer.policy", keys: "sequence_parallel_size megatron_config.*" },
    Group { why: Idle::Off, table: "trainer.policy", keys:
        "language_model_only inference_only_init torch_profiler_config.*" },
    Group { why: Idle::Memory, table: "trainer.ref", keys: "*" },
    Group { why: Idle::Off, table: "trainer", keys: "fully_async.* mtp.*" },
    Group { why: Idle::Memory, table: "trainer.critic", keys:
        "fsdp_config.* optimizer_config.offload_after_step use_torch_compile record_memory" },
    Group { why: Idle::Cluster, table: "trainer.critic", keys: "sequence_parallel_size megatron_config.*" },
    Group { why: Idle::Always, table: "trainer", keys: "recompute_old_logprobs_per_minibatch" },
    Group { why: Idle::Cluster, table: "trainer", keys:
        "strategy sequence_parallel_backend placement.colocate_all placement.policy_num_nodes \
         placement.policy_num_gpus_per_node placement.ref_num_gpus_per_node placement.* \
         enable_ray_gpu_monitor" },

    // Run
    Group { why: Idle::Records, table: "trainer", keys:
        "project_name logger tags resume_mode resume_path ckpt_path export_path log_path dump_data_batch \
         dump_eval_results print_example_interval log_example_interval num_logger_eval_samples \
         num_logger_train_samples" },
    Group { why: Idle::Engine, table: "trainer", keys: "disable_fast_tokenizer" },
    Group { why: Idle::Cluster, table: "", keys: "hydra.* defaults" },
];
