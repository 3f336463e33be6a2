"""Counterparts of OpenSeq2Seq's settings, as tables. Keys are paths below `base_params`, `train_params` and so on."""

from typing import Any

SAME_VALUE = {
    "max_steps": "training.steps",
    "random_seed": "training.seed",
    "eval_steps": "evaluation.every",
    "save_checkpoint_steps": "checkpoint.every",
    "num_checkpoints": "checkpoint.keep_last",
    "max_grad_norm": "optimizer.clip_norm",
    "optimizer_params.beta1": "optimizer.beta1",
    "optimizer_params.beta2": "optimizer.beta2",
    "optimizer_params.epsilon": "optimizer.epsilon",
    "learning_rate": "schedule.learning_rate",
    "lr_policy_params.learning_rate": "schedule.learning_rate",
    "lr_policy_params.warmup_steps": "schedule.warmup_steps",
    "lr_policy_params.d_model": "model.d_model",
    "encoder_params.encoder_layers": "model.encoder_layers",
    "encoder_params.hidden_size": "model.d_model",
    "encoder_params.num_heads": "model.heads",
    "encoder_params.filter_size": "model.feed_forward",
    "encoder_params.layer_postprocess_dropout": "model.dropout",
    "encoder_params.attention_dropout": "model.attention_dropout",
    "encoder_params.relu_dropout": "model.activation_dropout",
    "decoder_params.num_hidden_layers": "model.decoder_layers",
    "decoder_params.hidden_size": "model.d_model",
    "decoder_params.num_heads": "model.heads",
    "decoder_params.filter_size": "model.feed_forward",
    "decoder_params.layer_postprocess_dropout": "model.dropout",
    "decoder_params.attention_dropout": "model.attention_dropout",
    "decoder_params.relu_dropout": "model.activation_dropout",
    "loss_params.label_smoothing": "training.label_smoothing",
    "data_layer_params.max_length": "cleaning.max_tokens",
}
"""Settings of training with one counterpart, and the same value."""

BEAM_SEARCH = {
    "decoder_params.beam_size": "decoding.beam",
    "decoder_params.beam_width": "decoding.beam",
    "decoder_params.alpha": "decoding.length_penalty",
    "decoder_params.length_penalty": "decoding.length_penalty",
}
"""Settings of beam search, with any decoder. Those of `infer_params` apply before those of `base_params`."""

_ADAM = {
    "optimizer.algorithm": "adamw",
    "optimizer.beta1": 0.9,
    "optimizer.beta2": 0.999,
    "optimizer.epsilon": 1e-8,
}
CHOICES: dict[str, dict[str, dict[str, Any]]] = {
    "optimizer": {"Adam": _ADAM, "AdamOptimizer": _ADAM, "LazyAdamOptimizer": _ADAM},
    "lr_policy": {
        "transformer_policy": {"schedule.policy": "inverse_sqrt"},
        "fixed_lr": {"schedule.policy": "constant", "schedule.warmup_steps": 0},
    },
    "dtype": {
        "float32": {"training.precision": "fp32"},
        "float16": {"training.precision": "auto"},
        "mixed": {"training.precision": "auto"},
    },
    "encoder": {"TransformerEncoder": {}},
    "decoder": {"TransformerDecoder": {}},
    "loss": {
        "PaddedCrossEntropyLossWithSmoothing": {},
        "CrossEntropyWithSmoothing": {},
        "BasicSequenceLoss": {"training.label_smoothing": 0.0},
    },
    "data_layer": {"ParallelTextDataLayer": {}, "TransformerDataLayer": {}},
}
"""Names that a setting may have, and what each becomes, with its defaults. Other names have no counterpart."""

BUILT_IN: dict[str, tuple[Any, str]] = {
    "encoder_params.remove_padding": (True, "batches have no padding"),
    "decoder_params.EOS_ID": (None, "the data set's tokenizer has its own special tokens"),
    "decoder_params.GO_SYMBOL": (None, "the data set's tokenizer has its own special tokens"),
    "decoder_params.END_SYMBOL": (None, "the data set's tokenizer has its own special tokens"),
    "decoder_params.PAD_SYMBOL": (None, "the data set's tokenizer has its own special tokens"),
    "data_layer_params.shuffle": (True, "every epoch is shuffled"),
    "data_layer_params.repeat": (True, "epochs follow each other until training.steps"),
    "loss_params.do_mask": (True, "batches have no padding"),
    "loss_params.offset_target_by_one": (True, "the decoder predicts the next token"),
    "decoder_params.pad_embeddings_2_eight": (True, "the vocabulary is padded to a multiple of 64"),
    "encoder_params.pad_embeddings_2_eight": (True, "the vocabulary is padded to a multiple of 64"),
    "data_layer_params.pad_vocab_to_eight": (True, "the vocabulary is padded to a multiple of 64"),
    "data_layer_params.batch_in_tokens": (True, "batch.tokens is in tokens"),
}
"""What Dragoman always does, if the value is this one; None stands for any value."""

_PADDED_VOCABULARY = "the vocabulary is always padded, to a multiple of 64"
_OWN_TOKENIZER = "`dragoman prepare` trains a tokenizer; `--tokenizer` takes an existing SentencePiece model"
_DATA_LOADER = "the data set is memory-mapped, and batches are prefetched"
_RECORDED = "every step is recorded: see TensorBoard and `dragoman watch`"
_BFLOAT16 = "bfloat16 needs no loss scaling"
REASONS = {
    "encoder_params.pad_embeddings_2_eight": _PADDED_VOCABULARY,
    "decoder_params.pad_embeddings_2_eight": _PADDED_VOCABULARY,
    "data_layer_params.pad_vocab_to_eight": _PADDED_VOCABULARY,
    "data_layer_params.src_vocab_file": _OWN_TOKENIZER,
    "data_layer_params.tgt_vocab_file": _OWN_TOKENIZER,
    "data_layer_params.delimiter": "Dragoman reads text, not files of tokens",
    "data_layer_params.shuffle_buffer_size": "the whole epoch is shuffled",
    "data_layer_params.map_parallel_calls": _DATA_LOADER,
    "data_layer_params.prefetch_buffer_size": _DATA_LOADER,
    "data_layer_params.num_cpu_cores": _DATA_LOADER,
    "data_layer_params.pad_lengths_to_eight": "batches have no padding",
    "data_layer_params.pad_data_to_eight": "batches have no padding",
    "decoder_params.extra_decode_length": "nearest: decoding.max_length_ratio, a multiple of the source's length",
    "lr_policy_params.max_lr": "lower schedule.learning_rate, or choose another schedule.policy",
    "save_summaries_steps": _RECORDED,
    "print_loss_steps": _RECORDED,
    "print_bench_info_steps": _RECORDED,
    "print_samples_steps": "nearest: evaluation.samples, at each evaluation",
    "summaries": _RECORDED,
    "loss_scaling": _BFLOAT16,
    "automatic_loss_scaling": _BFLOAT16,
    "loss_scaling_params": _BFLOAT16,
    "larc_params": "nearest: optimizer.clip_norm",
    "regularizer": "nearest: optimizer.weight_decay, which is decoupled",
    "regularizer_params": "nearest: optimizer.weight_decay, which is decoupled",
    "num_epochs": "set training.steps; the manifest of the data set has the number of tokens",
    "initializer": "weights have Dragoman's own initial values",
    "load_model": "TensorFlow checkpoints cannot be read",
    "lr_policy": "nearest: another schedule.policy",
    "optimizer": "Dragoman has AdamW and Muon: see optimizer.algorithm",
    "encoder": "Dragoman trains Transformers",
    "decoder": "Dragoman trains Transformers",
    "loss": "Dragoman trains with cross-entropy",
    "data_layer": "`dragoman prepare` reads text",
}
"""Advice for settings without a counterpart, by key or by its first part."""
