#!/usr/bin/env bash
# A script in the form of those that start verl's DAPO, of our own making.
set -euo pipefail

prompts=512
group=16
limit=$((1024 * 20))
export BUFFER=$((limit / 5))
HOME_OF_DATA=${HOME_OF_DATA:-"${HOME}/data"}
MODEL=${MODEL:-Qwen/Qwen2.5-32B}
rounds=10 # before it gives up
if [ -n "$SMALL" ]; then
    rounds=5
fi
FILTER=(
    algorithm.filter_groups.enable=True
    "algorithm.filter_groups.max_num_gen_batches=${rounds}"
    algorithm.filter_groups.metric=acc
)

ray job submit --no-wait -- python3 -m recipe.dapo.main_dapo \
    data.train_files="${HOME_OF_DATA}/dapo-math-17k.parquet" \
    data.truncation='left' \
    data.max_prompt_length=$((1024 * 2)) \
    data.max_response_length=${limit} \
    data.gen_batch_size=$((prompts * 3)) \
    data.train_batch_size=${prompts} \
    actor_rollout_ref.rollout.n=$group \
    algorithm.adv_estimator=grpo \
    algorithm.use_kl_in_reward=False \
    actor_rollout_ref.actor.use_kl_loss=False \
    actor_rollout_ref.actor.clip_ratio_low=0.2 \
    actor_rollout_ref.actor.clip_ratio_high=0.28 \
    actor_rollout_ref.actor.clip_ratio_c=10.0 \
    actor_rollout_ref.model.path="${MODEL}" \
    +actor_rollout_ref.model.override_config.attention_dropout=0. \
    actor_rollout_ref.actor.optim.lr=1e-6 \
    actor_rollout_ref.actor.optim.lr_warmup_steps=10 \
    actor_rollout_ref.actor.optim.weight_decay=0.1 \
    actor_rollout_ref.actor.ppo_mini_batch_size=32 \
    actor_rollout_ref.actor.loss_agg_mode="token-mean" \
    actor_rollout_ref.rollout.val_kwargs.temperature=1.0 \
    actor_rollout_ref.rollout.val_kwargs.top_p=0.7 \
    actor_rollout_ref.rollout.val_kwargs.do_sample=True \
    actor_rollout_ref.rollout.val_kwargs.n=1 \
    "${FILTER[@]}" \
    reward_model.reward_manager=dapo \
    reward_model.overlong_buffer.enable=True \
    reward_model.overlong_buffer.len=${BUFFER} \
    reward_model.overlong_buffer.penalty_factor=1.0 \
    trainer.logger='["console","wandb"]' \
    trainer.nnodes="${NNODES:-16}" \
    trainer.test_freq=5 \
    trainer.total_epochs=1 $@
