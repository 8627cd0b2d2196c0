set -x
# A script in the form of SkyRL's DAPO example, of our own making.
DATA="$HOME/data/gsm8k"
N=5

uv run --isolated -m examples.train.algorithms.dapo.main_dapo \
  data.train_data="['$DATA/train.parquet']" \
  data.val_data="['$DATA/validation.parquet']" \
  trainer.algorithm.advantage_estimator="grpo" \
  trainer.algorithm.policy_loss_type="dual_clip" \
  trainer.algorithm.clip_ratio_c=10.0 \
  trainer.algorithm.overlong_buffer_len=512 \
  trainer.algorithm.overlong_buffer_penalty_factor=1.0 \
  trainer.algorithm.eps_clip_high=0.28 \
  trainer.algorithm.dynamic_sampling.type=filter \
  trainer.algorithm.dynamic_sampling.max_sample_batches=30 \
  trainer.algorithm.loss_reduction="token_mean_legacy" \
  trainer.algorithm.use_kl_loss=false \
  generator.apply_overlong_filtering=true \
  generator.zero_reward_on_non_stop=true \
  generator.eval_sampling_params.top_p=0.7 \
  generator.inference_engine.num_engines=4 \
  trainer.policy.model.path="Qwen/Qwen2.5-1.5B-Instruct" \
  trainer.epochs=20 \
  trainer.eval.interval=5 \
  trainer.train_batch_size=1024 \
  trainer.policy_mini_batch_size=256 \
  trainer.policy.optimizer_config.num_warmup_steps=30 \
  generator.n_samples_per_prompt=$N \
  generator.max_turns=3 \
  environment.env_class=gsm8k \
  trainer.run_name="gsm8k_dapo" \
  $@
