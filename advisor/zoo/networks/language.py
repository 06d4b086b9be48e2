"""Transformers over tokens: BERT (Devlin et al. 2019) and GPT-2 (Radford et al. 2019).

Sizes, dropout and the place of the norms are those of the papers; attention is torch's own
`scaled_dot_product_attention`, except in shapes that say otherwise.
"""

from dataclasses import dataclass
from math import pi, sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional

_DROPOUT = 0.1
_INIT_STD = 0.02


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of a transformer.

    Attributes:
        positions: The longest sequence it takes.
        fused: Whether attention and GPT-2's GELU are a kernel each. Otherwise each is the products,
            powers and softmax of which its formula consists, as in Hugging Face's models with
            ``attn_implementation="eager"``, which others have timed.
    """

    layers: int
    width: int
    heads: int
    vocabulary: int
    positions: int
    fused: bool = True


BERT_BASE = Shape(layers=12, width=768, heads=12, vocabulary=30_522, positions=512)
GPT2_SMALL = Shape(layers=12, width=768, heads=12, vocabulary=50_257, positions=1024)
GPT2_MEDIUM = Shape(layers=24, width=1024, heads=16, vocabulary=50_257, positions=1024)
BERT_LARGE = Shape(layers=24, width=1024, heads=16, vocabulary=30_522, positions=512, fused=False)
GPT2_LARGE = Shape(layers=36, width=1280, heads=20, vocabulary=50_257, positions=1024, fused=False)
TOY = Shape(layers=2, width=128, heads=4, vocabulary=1000, positions=256)


class _SelfAttention(nn.Module):
    def __init__(self, shape: Shape, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = shape.heads, causal
        self.attend = functional.scaled_dot_product_attention if shape.fused else _attention
        self.to_qkv = nn.Linear(shape.width, 3 * shape.width)
        self.out = nn.Linear(shape.width, shape.width)

    def forward(self, tokens: Tensor) -> Tensor:
        batch, length, width = tokens.shape
        qkv = self.to_qkv(tokens).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)  # each (batch, heads, length, width / heads)
        mixed = self.attend(
            query, key, value, dropout_p=_DROPOUT if self.training else 0.0, is_causal=self.causal
        )
        merged: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return merged


def _attention(
    query: Tensor, key: Tensor, value: Tensor, *, dropout_p: float, is_causal: bool
) -> Tensor:
    """What `scaled_dot_product_attention` computes, a kernel for each operation."""
    scores = query @ key.transpose(-2, -1) / sqrt(query.shape[-1])
    if is_causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = torch.where(seen, scores, torch.finfo(scores.dtype).min)
    return functional.dropout(scores.softmax(dim=-1), dropout_p) @ value


class _TanhGelu(nn.Module):
    """What `nn.GELU(approximate="tanh")` computes, a kernel for each operation."""

    def forward(self, inner: Tensor) -> Tensor:
        cubic = inner + 0.044715 * torch.pow(inner, 3.0)
        return 0.5 * inner * (1.0 + torch.tanh(sqrt(2.0 / pi) * cubic))


class _TransformerBlock(nn.Module):
    """Attention and a feed-forward part; GPT-2 normalises before each, BERT after."""

    def __init__(self, shape: Shape, causal: bool) -> None:
        super().__init__()
        self.norm_first = causal
        self.attention = _SelfAttention(shape, causal)
        self.attention_norm = nn.LayerNorm(shape.width)
        gelu = nn.GELU(approximate="tanh" if causal else "none")
        self.feed_forward = nn.Sequential(
            nn.Linear(shape.width, 4 * shape.width),
            _TanhGelu() if causal and not shape.fused else gelu,
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


class MaskedLanguageModel(nn.Module):
    """Logits of every token, shape (batch, length, vocabulary), from token ids (batch, length).

    The output layer shares its weights with the token embedding, as BERT's does in pretraining.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.trunk = _Trunk(shape, causal=False)
        self.transform = nn.Sequential(
            nn.Linear(shape.width, shape.width), nn.GELU(), nn.LayerNorm(shape.width)
        )
        self.bias = nn.Parameter(torch.zeros(shape.vocabulary))
        self.apply(_initialise)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.transform(self.trunk(tokens))
        return functional.linear(hidden, self.trunk.token.weight, self.bias)


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
