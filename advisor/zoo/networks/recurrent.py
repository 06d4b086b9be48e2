"""Recurrent networks: a language model after Zaremba et al. 2014, a classifier of spoken words.

Both use torch's own layers, which on a GPU are cuDNN's.
"""

import torch
from torch import Tensor, nn

# "Medium" of Zaremba et al. 2014, section 4.1; the vocabulary is that of WikiText-2.
LSTM_VOCABULARY = 33_278
_LSTM_WIDTH, _LSTM_LAYERS, _LSTM_DROPOUT, _LSTM_INIT = 650, 2, 0.5, 0.05

# Mel bands of a frame, as usual for keywords.
SPEECH_BANDS = 80
_GRU_WIDTH, _GRU_LAYERS = 512, 3


class LstmLanguageModel(nn.Module):
    """Next-token logits, shape (batch, length, vocabulary), from token ids (batch, length)."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(LSTM_VOCABULARY, _LSTM_WIDTH)
        self.dropout = nn.Dropout(_LSTM_DROPOUT)
        self.layers = nn.LSTM(
            _LSTM_WIDTH, _LSTM_WIDTH, _LSTM_LAYERS, dropout=_LSTM_DROPOUT, batch_first=True
        )
        self.head = nn.Linear(_LSTM_WIDTH, LSTM_VOCABULARY)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -_LSTM_INIT, _LSTM_INIT)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden, _ = self.layers(self.dropout(self.token(tokens)))
        logits: Tensor = self.head(self.dropout(hidden))
        return logits


class GruClassifier(nn.Module):
    """Logits, shape (batch, classes), from frames (batch, length, `SPEECH_BANDS`).

    Reads in both directions, and decides by the mean over all frames.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.layers = nn.GRU(
            SPEECH_BANDS, _GRU_WIDTH, _GRU_LAYERS, batch_first=True, bidirectional=True
        )
        self.head = nn.Linear(2 * _GRU_WIDTH, classes)

    def forward(self, frames: Tensor) -> Tensor:
        hidden, _ = self.layers(frames)  # (batch, length, 2 * width)
        logits: Tensor = self.head(torch.mean(hidden, dim=1))
        return logits
