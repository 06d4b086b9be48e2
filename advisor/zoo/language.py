"""Networks over tokens and frames, with the sizes, dropout and norms of the papers.

BERT (Devlin et al. 2019), GPT-2 (Radford et al. 2019), T5, an LSTM and a GRU.
"""

from dataclasses import dataclass
from math import log, pi, sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional

_DROPOUT = 0.1
_INIT_STD = 0.02


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of a transformer.

    Attributes:
        positions: Length of the longest sequence.
        fused: Whether attention (torch's `scaled_dot_product_attention`) and GPT-2's GELU are a
            kernel each. Otherwise each is the products, powers and softmax of its formula, as in
            Hugging Face's models with ``attn_implementation="eager"``, which others have timed.
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
    """Compute `scaled_dot_product_attention` with a kernel for each operation."""
    scores = query @ key.transpose(-2, -1) / sqrt(query.shape[-1])
    if is_causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = torch.where(seen, scores, torch.finfo(scores.dtype).min)
    return functional.dropout(scores.softmax(dim=-1), dropout_p) @ value


class _TanhGelu(nn.Module):
    """`nn.GELU(approximate="tanh")` with a kernel for each operation."""

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
        blocks = (_TransformerBlock(shape, causal) for _ in range(shape.layers))
        self.blocks = nn.Sequential(*blocks)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        embedded = self.norm(self.token(tokens) + self.position(places))
        hidden: Tensor = self.blocks(self.dropout(embedded))
        return hidden


class LanguageModel(nn.Module):
    """Next-token logits, shape (batch, length, vocabulary), from token ids (batch, length).

    As in GPT-2, the output layer shares its weights with the token embedding.
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


T5_VOCABULARY = 32_128
_LAYERS, _WIDTH, _HEADS, _HEAD_WIDTH, _INNER = 6, 512, 8, 64, 2048
_BUCKETS, _FARTHEST = 32, 128
_T5_DROPOUT = 0.1


class T5Small(nn.Module):
    """Next-token logits, shape (batch, target length, vocabulary).

    Takes token ids of the source, (batch, source length), and of the target so far, (batch,
    target length). T5 (Raffel et al. 2020) in its size "small". Its norms subtract no mean, and it
    has no biases. Positions enter only as a bias on attention, which all layers of a side share.
    The output layer shares its weights with the token embedding. Dropout and the scale of the first
    weights are those of the paper's code.
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
        self.dropout = nn.Dropout(_T5_DROPOUT)

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
            _linear(_WIDTH, _INNER), nn.ReLU(), nn.Dropout(_T5_DROPOUT), _linear(_INNER, _WIDTH)
        )
        self.dropout = nn.Dropout(_T5_DROPOUT)

    def forward(self, hidden: Tensor, bias: Tensor, encoded: Tensor | None) -> Tensor:
        normed = self.attention_norm(hidden)
        hidden = hidden + self.dropout(self.attention(normed, normed, bias))
        if self.cross is not None and self.cross_norm is not None:
            hidden = hidden + self.dropout(self.cross(self.cross_norm(hidden), encoded, None))
        gained: Tensor = self.dropout(self.inner(self.inner_norm(hidden)))
        return hidden + gained


class _BiasedAttention(nn.Module):
    """Attention of `asking` to `memory`, both (batch, length, width), without scaled products."""

    def __init__(self) -> None:
        super().__init__()
        inner = _HEADS * _HEAD_WIDTH
        # The first queries are small instead.
        self.query = _linear(_WIDTH, inner, std=(_WIDTH * _HEAD_WIDTH) ** -0.5)
        self.key_value = _linear(_WIDTH, 2 * inner)
        self.out = _linear(inner, _WIDTH)

    def forward(self, asking: Tensor, memory: Tensor, bias: Tensor | None) -> Tensor:
        query = _heads(self.query(asking))
        key, value = map(_heads, self.key_value(memory).chunk(2, dim=-1))
        # In the queries' type: outside autocast's reach, torch takes no other.
        mask = None if bias is None else bias.to(query.dtype).expand(len(query), -1, -1, -1)
        dropout = _T5_DROPOUT if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=dropout, scale=1.0
        )
        merged: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return merged


class _PositionBias(nn.Module):
    """Each head's bias for the distance of two tokens, shape (1, heads, length, length)."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.of_bucket = nn.Embedding(_BUCKETS, _HEADS)

    def forward(self, length: int) -> Tensor:
        places = torch.arange(length, device=self.of_bucket.weight.device)
        ahead = places[None, :] - places[:, None]  # (asking, memory)
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


# Both recurrent networks use torch's own layers, which on a GPU are cuDNN's.
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
