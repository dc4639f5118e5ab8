"""A small BERT trained by the Trainer of Transformers, which is restarted from its checkpoint at each change of size.

bftrain train bert_huggingface.py --launcher process --nodes 1:4. What makes it elastic is marked 1 to 4; everything
else is as Transformers has it. Workers start sooner with --set preload=transformers.trainer. Needs: pip install
transformers accelerate
"""

import argparse
import os
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from bftrain_elastic.huggingface import ElasticCallback, last_checkpoint, per_worker  # 1.


def sentences(count: int) -> list[dict[str, torch.Tensor | int]]:
    """Draw rows of words; the label is the kind of the first word, out of three."""
    rows = torch.randint(3, 60, (count, 16))
    return [{"input_ids": row, "labels": int(row[0]) % 3} for row in rows]


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=100)
arguments = parser.parse_args()

torch.manual_seed(1)
torch.set_num_threads(1)
size = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
model = BertForSequenceClassification(BertConfig(vocab_size=60, num_labels=3, **size))
folder = os.environ.get("BFTRAIN_FOLDER") or tempfile.mkdtemp()
settings = TrainingArguments(
    output_dir=folder,
    num_train_epochs=arguments.epochs,
    per_device_train_batch_size=per_worker(48),  # 2. of all workers together
    average_tokens_across_devices=False,
    use_cpu=not torch.cuda.is_available(),  # Trainer would form no group if there is no GPU
    learning_rate=1e-3,
    warmup_steps=50,
    eval_strategy="epoch",
    save_strategy="no",
    logging_steps=20,
    report_to=[],
    disable_tqdm=True,
)
data = {"train_dataset": sentences(960), "eval_dataset": sentences(96)}
trainer = Trainer(model=model, args=settings, callbacks=[ElasticCallback()], **data)  # 3.
trainer.train(resume_from_checkpoint=last_checkpoint(folder))  # 4.
