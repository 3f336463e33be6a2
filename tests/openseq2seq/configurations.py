"""Configurations in the style of OpenSeq2Seq's."""

TRANSFORMER = '''
from __future__ import absolute_import
import os
import tensorflow as tf
from open_seq2seq.models import Text2Text
from open_seq2seq.encoders import TransformerEncoder
from open_seq2seq.decoders import TransformerDecoder as Decoder
from open_seq2seq.data.text2text.text2text import ParallelTextDataLayer, SpecialTextTokens
from open_seq2seq.losses import PaddedCrossEntropyLossWithSmoothing
from open_seq2seq.optimizers.lr_policies import transformer_policy

"""A small one."""
base_model = Text2Text
width, layers = 64, 2
root = "/corpora/mine"

base_params = dict(
  use_horovod=False,
  num_gpus=2,
  batch_size_per_gpu=100,
  max_steps=3 * 1000,
  eval_steps=500,
  print_loss_steps=10,
  logdir="runs/small",
  dtype="mixed",
  loss_scaling="Backoff",
  optimizer=tf.contrib.opt.LazyAdamOptimizer,
  optimizer_params={"beta1": 0.9, "beta2": 0.98, "epsilon": 1e-09},
  lr_policy=transformer_policy,
  lr_policy_params={"learning_rate": 2.0, "warmup_steps": 400, "d_model": width, "coefficient": 0.5},
  encoder=TransformerEncoder,
  encoder_params={
    "encoder_layers": layers, "hidden_size": width, "num_heads": 4, "filter_size": 4 * width,
    "attention_dropout": 0.1, "relu_dropout": 0.2, "layer_postprocess_dropout": 0.3, "remove_padding": True,
  },
  decoder=Decoder,
  loss=PaddedCrossEntropyLossWithSmoothing,
  loss_params={"label_smoothing": 0.1},
)
base_params["decoder_params"] = {
  "num_hidden_layers": layers + 1, "hidden_size": width, "num_heads": 8, "beam_size": 5, "alpha": 0.6,
  "extra_decode_length": 50, "GO_SYMBOL": SpecialTextTokens.S_ID.value,
}
base_params.update(random_seed=7)

train_params = {
  "data_layer": ParallelTextDataLayer,
  "data_layer_params": {
    "source_file": os.path.join(root, "train.en"), "target_file": root + "/train.de", "max_length": 56, "shuffle": True,
  },
}
eval_params = {
  "batch_size_per_gpu": 16,
  "data_layer_params": {"source_file": root + "/dev.en", "target_file": f"{root}/dev.de", "shuffle": False},
}
'''
