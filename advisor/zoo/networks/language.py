"""Transformers over tokens: BERT (Devlin et al. 2019) and GPT-2 (Radford et al. 2019).

Sizes, dropout and the place of the norms are those of the papers; attention is torch's own
`scaled_dot_product_attention`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

_DROPOUT = 0.1
_INIT_STD = 0.02


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of a transformer; `positions` is the longest sequence it takes."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    positions: int


BERT_BASE = Shape(layers=12, width=768, heads=12, vocabulary=30_522, positions=512)
GPT2_SMALL = Shape(layers=12, width=768, heads=12, vocabulary=50_257, positions=1024)
GPT2_MEDIUM = Shape(layers=24, width=1024, heads=16, vocabulary=50_257, positions=1024)
TOY = Shape(layers=2, width=128, heads=4, vocabulary=1000, positions=256)


class _SelfAttention(nn.Module):
    def __init__(self, shape: Shape, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = shape.heads, causal
        self.to_qkv = nn.Linear(shape.width, 3 * shape.width)
        self.out = nn.Linear(shape.width, shape.width)

    def forward(self, tokens: Tensor) -> Tensor:
        batch, length, width = tokens.shape
        qkv = self.to_qkv(tokens).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)  # each (batch, heads, length, width / heads)
        mixed = functional.scaled_dot_product_attention(
            query, key, value, dropout_p=_DROPOUT if self.training else 0.0, is_causal=self.causal
        )
        merged: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return merged


class _TransformerBlock(nn.Module):
    """Attention and a feed-forward part; GPT-2 normalises before each, BERT after."""

    def __init__(self, shape: Shape, causal: bool) -> None:
        super().__init__()
        self.norm_first = causal
        self.attention = _SelfAttention(shape, causal)
        self.attention_norm = nn.LayerNorm(shape.width)
        self.feed_forward = nn.Sequential(
            nn.Linear(shape.width, 4 * shape.width),
            nn.GELU(approximate="tanh" if causal else "none"),
            nn.Linear(4 * shape.width, shape.width),
        )
        self.feed_forward_norm = nn.LayerNorm(shape.width)
        self.dropout = nn.Dropout(_DROPOUT)

    def forward(self, tokens: Tensor) -> Tensor:
        if self.norm_first:
            tokens = tokens + self.dropout(self.attention(self.attention_norm(tokens)))
            tokens = tokens + self.dropout(self.feed_forward(self.feed_forward_norm(tokens)))
        else:
            tokens = self.attention_norm(tokens + self.dropout(self.attention(tokens)))
            tokens = self.feed_forward_norm(tokens + self.dropout(self.feed_forward(tokens)))
        return tokens


class _Trunk(nn.Module):
    """Token and position embeddings, then the blocks: (batch, length) to (batch, length, width)."""

    def __init__(self, shape: Shape, causal: bool) -> None:
        super().__init__()
        self.token = nn.Embedding(shape.vocabulary, shape.width)
        self.position = nn.Embedding(shape.positions, shape.width)
        # BERT normalises what it embeds; GPT-2 what its last block gives.
        self.norm = nn.Identity() if causal else nn.LayerNorm(shape.width)
        self.dropout = nn.Dropout(_DROPOUT)
        self.blocks = nn.Sequential(
            *(_TransformerBlock(shape, causal) for _ in range(shape.layers))
        )

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        embedded = self.norm(self.token(tokens) + self.position(places))
        hidden: Tensor = self.blocks(self.dropout(embedded))
        return hidden


class LanguageModel(nn.Module):
    """Next-token logits, shape (batch, length, vocabulary), from token ids (batch, length).

    The output layer shares its weights with the token embedding, as GPT-2's does.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.trunk = _Trunk(shape, causal=True)
        self.norm = nn.LayerNorm(shape.width)
        self.apply(_initialise)

    def forward(self, tokens: Tensor) -> Tensor:
        return functional.linear(self.norm(self.trunk(tokens)), self.trunk.token.weight)


class SentenceClassifier(nn.Module):
    """Logits, shape (batch, classes), from token ids (batch, length), read off the first token."""

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        self.trunk = _Trunk(shape, causal=False)
        self.pooler = nn.Linear(shape.width, shape.width)
        self.head = nn.Linear(shape.width, classes)
        self.apply(_initialise)

    def forward(self, tokens: Tensor) -> Tensor:
        first = self.trunk(tokens)[:, 0]
        logits: Tensor = self.head(torch.tanh(self.pooler(first)))
        return logits


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=_INIT_STD)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
