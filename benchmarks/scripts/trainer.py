"""Hugging Face's Trainer on GPT-2 small, batch 8 of 256 tokens (not the zoo's own GPT-2)."""

import argparse

import torch
from own_pace import OwnPace
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class Tokens(Dataset):
    def __len__(self):
        return 8158

    def __getitem__(self, index):
        tokens = torch.randint(50_000, (256,))
        return {"input_ids": tokens, "labels": tokens}


class Paced(TrainerCallback):
    def __init__(self):
        self._pace = OwnPace()

    def on_step_end(self, args, state, control, **kwargs):
        self._pace.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=-1)
    parser.add_argument("--tiny", action="store_true")
    asked = parser.parse_args()
    sizes = {"n_layer": 1, "n_embd": 16, "n_head": 2} if asked.tiny else {}
    arguments = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=8,
        max_steps=asked.steps,
        num_train_epochs=100,
        save_strategy="no",
        report_to=[],
        logging_steps=200,
        dataloader_num_workers=1,
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
    )
    model = GPT2LMHeadModel(GPT2Config(**sizes))
    Trainer(model=model, args=arguments, train_dataset=Tokens(), callbacks=[Paced()]).train()


if __name__ == "__main__":
    main()
