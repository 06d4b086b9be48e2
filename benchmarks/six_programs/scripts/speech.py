"""Trains a small Whisper with Lightning; two workers make log-mel spectrograms on the host."""

import lightning
import torch
from progress import Progress
from torch.utils.data import DataLoader, Dataset
from transformers import WhisperConfig, WhisperForConditionalGeneration

HOP, WINDOW, BANDS = 160, 400, 80
TOKENS = 64


class Utterances(Dataset):
    """Noise of some seconds at 16 kHz; an epoch is as long as that of LibriSpeech's first part."""

    def __init__(self, frames, vocabulary):
        self._frames, self._vocabulary = frames, vocabulary
        self._sound = torch.randn(16, frames * HOP + 4_000)
        self._bands = torch.rand(BANDS, WINDOW // 2 + 1)

    def __len__(self):
        return 28_539

    def __getitem__(self, index):
        begin = index * 97 % 4_000
        sound = self._sound[index % len(self._sound), begin : begin + self._frames * HOP]
        sound = sound * (0.5 + torch.rand(())) + 0.01 * torch.randn_like(sound)
        window = torch.hann_window(WINDOW)
        spectrum = torch.stft(sound, WINDOW, HOP, window=window, return_complex=True)
        power = self._bands @ spectrum[:, :-1].abs().square()
        return power.clamp(min=1e-10).log10(), torch.randint(self._vocabulary, (TOKENS,))


class Recogniser(lightning.LightningModule):
    def __init__(self, config):
        super().__init__()
        self.network = WhisperForConditionalGeneration(config)

    def training_step(self, batch, batch_idx):
        features, tokens = batch
        return self.network(input_features=features, labels=tokens).loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


class Printed(lightning.Callback):
    def __init__(self, progress):
        self._progress = progress

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        trainer.should_stop = not self._progress.step(outputs["loss"])


def main():
    progress = Progress(__doc__)
    tiny = progress.tiny
    width, layers, frames, vocabulary = (16, 1, 40, 200) if tiny else (384, 4, 1000, 10_000)
    config = WhisperConfig(
        vocab_size=vocabulary,
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=2 if tiny else 6,
        decoder_attention_heads=2 if tiny else 6,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        num_mel_bins=BANDS,
        max_source_positions=frames // 2,
        max_target_positions=TOKENS,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    loader = DataLoader(
        Utterances(frames, vocabulary),
        2 if tiny else 16,
        num_workers=0 if tiny else 2,
        pin_memory=progress.device.type == "cuda",
        persistent_workers=not tiny,
        drop_last=True,
    )
    trainer = lightning.Trainer(
        max_epochs=-1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="auto",
        devices=1,
        precision="bf16-mixed" if progress.device.type == "cuda" else 32,
        callbacks=[Printed(progress)],
    )
    trainer.fit(Recogniser(config), loader)


if __name__ == "__main__":
    main()
