"""An encoder and a decoder over tokens: T5 (Raffel et al. 2020), in its size "small".

Norms without means, no biases, positions only as a bias on attention, which all layers of a side
share. Dropout and the scale of the first weights are those of the paper's code.
"""

from math import log

import torch
from torch import Tensor, nn
from torch.nn import functional

T5_VOCABULARY = 32_128
_LAYERS, _WIDTH, _HEADS, _HEAD_WIDTH, _INNER = 6, 512, 8, 64, 2048
_BUCKETS, _FARTHEST = 32, 128
_DROPOUT = 0.1


class T5Small(nn.Module):
    """Next-token logits, shape (batch, target length, vocabulary).

    Takes token ids of the source, (batch, source length), and of the target so far, (batch,
    target length). The output layer shares its weights with the token embedding.
    """

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(T5_VOCABULARY, _WIDTH)
        self.encoder = _Side(decodes=False)
        self.decoder = _Side(decodes=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        encoded = self.encoder(self.token(source), None)
        decoded = self.decoder(self.token(target), encoded)
        return functional.linear(decoded * _WIDTH**-0.5, self.token.weight)


class _Side(nn.Module):
    def __init__(self, decodes: bool) -> None:
        super().__init__()
        self.bias = _PositionBias(causal=decodes)
        self.layers = nn.ModuleList(_Layer(decodes) for _ in range(_LAYERS))
        self.norm = nn.RMSNorm(_WIDTH, eps=1e-6)
        self.dropout = nn.Dropout(_DROPOUT)

    def forward(self, tokens: Tensor, encoded: Tensor | None) -> Tensor:
        bias = self.bias(tokens.shape[1])
        hidden = self.dropout(tokens)
        for layer in self.layers:
            hidden = layer(hidden, bias, encoded)
        normed: Tensor = self.dropout(self.norm(hidden))
        return normed


class _Layer(nn.Module):
    def __init__(self, decodes: bool) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(_WIDTH, eps=1e-6)
        self.attention = _BiasedAttention()
        self.cross_norm = nn.RMSNorm(_WIDTH, eps=1e-6) if decodes else None
        self.cross = _BiasedAttention() if decodes else None
        self.inner_norm = nn.RMSNorm(_WIDTH, eps=1e-6)
        self.inner = nn.Sequential(
            _linear(_WIDTH, _INNER), nn.ReLU(), nn.Dropout(_DROPOUT), _linear(_INNER, _WIDTH)
        )
        self.dropout = nn.Dropout(_DROPOUT)

    def forward(self, hidden: Tensor, bias: Tensor, encoded: Tensor | None) -> Tensor:
        normed = self.attention_norm(hidden)
        hidden = hidden + self.dropout(self.attention(normed, normed, bias))
        if self.cross is not None and self.cross_norm is not None:
            hidden = hidden + self.dropout(self.cross(self.cross_norm(hidden), encoded, None))
        gained: Tensor = self.dropout(self.inner(self.inner_norm(hidden)))
        return hidden + gained


class _BiasedAttention(nn.Module):
    """Of `asking` to `asked`, both (batch, length, width); the products are not scaled down."""

    def __init__(self) -> None:
        super().__init__()
        inner = _HEADS * _HEAD_WIDTH
        # The first queries are small instead.
        self.query = _linear(_WIDTH, inner, std=(_WIDTH * _HEAD_WIDTH) ** -0.5)
        self.key_value = _linear(_WIDTH, 2 * inner)
        self.out = _linear(inner, _WIDTH)

    def forward(self, asking: Tensor, asked: Tensor, bias: Tensor | None) -> Tensor:
        query = _heads(self.query(asking))
        key, value = map(_heads, self.key_value(asked).chunk(2, dim=-1))
        mixed = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            # In the queries' type: outside autocast's reach, torch takes no other.
            attn_mask=None if bias is None else bias.to(query.dtype).expand(len(query), -1, -1, -1),
            dropout_p=_DROPOUT if self.training else 0.0,
            scale=1.0,
        )
        merged: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return merged


class _PositionBias(nn.Module):
    """What each head adds for how far apart two tokens are, shape (1, heads, length, length)."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.of_bucket = nn.Embedding(_BUCKETS, _HEADS)

    def forward(self, length: int) -> Tensor:
        places = torch.arange(length, device=self.of_bucket.weight.device)
        ahead = places[None, :] - places[:, None]  # (asking, asked)
        bias: Tensor = self.of_bucket(self._bucket(ahead)).permute(2, 0, 1).contiguous()
        bias = bias.unsqueeze(0)
        return bias.masked_fill(ahead > 0, float("-inf")) if self.causal else bias

    def _bucket(self, ahead: Tensor) -> Tensor:
        """Half of the buckets hold one small distance each, the others are ever wider."""
        buckets = _BUCKETS if self.causal else _BUCKETS // 2
        first = (ahead > 0).long() * (_BUCKETS - buckets)
        distance = (-ahead).clamp(min=0) if self.causal else ahead.abs()
        near = buckets // 2
        beyond = torch.log(distance.clamp(min=near) / near) / log(_FARTHEST / near)
        far = (near + (beyond * (buckets - near)).long()).clamp(max=buckets - 1)
        return first + torch.where(distance < near, distance, far)


def _heads(rows: Tensor) -> Tensor:
    """(batch, length, heads * width) to (batch, heads, length, width)."""
    return rows.view(*rows.shape[:2], _HEADS, _HEAD_WIDTH).transpose(1, 2)


def _linear(before: int, after: int, std: float | None = None) -> nn.Linear:
    layer = nn.Linear(before, after, bias=False)
    nn.init.normal_(layer.weight, std=before**-0.5 if std is None else std)
    return layer
