"""Makes the data that the listed programs read: random, with a fixed seed, in files' own formats.

Sizes are those of the data sets that the programs name where that is quick, so that epochs are as
long as their authors know them; many entries may stand for the same few files.
"""

import gzip
import json
import pickle
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np

SEED = 20261127
_CORA = {"nodes": 2708, "words": 1433, "classes": 7, "edges": 5429}


def _generator() -> np.random.Generator:
    return np.random.default_rng(SEED)


def folder(at: Path) -> None:
    """Make an empty folder, where a program only writes."""
    at.mkdir(parents=True, exist_ok=True)


# Images


def mnist(at: Path) -> None:
    """Write MNIST's four files, which torchvision reads from ``MNIST/raw``."""
    raw = at / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    random = _generator()
    for part, count in (("train", 60_000), ("t10k", 10_000)):
        images = random.integers(256, size=(count, 28, 28), dtype=np.uint8)
        labels = random.integers(10, size=count, dtype=np.uint8)
        sizes = b"".join(size.to_bytes(4, "big") for size in (2051, count, 28, 28))
        (raw / f"{part}-images-idx3-ubyte").write_bytes(sizes + images.tobytes())
        sizes = b"".join(size.to_bytes(4, "big") for size in (2049, count))
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(sizes + labels.tobytes())


def _pictures(width: int, height: int) -> Iterator[np.ndarray]:
    """Smooth noise, which compresses about as well as photographs."""
    random = _generator()
    while True:
        coarse = random.integers(256, size=(height // 8 + 1, width // 8 + 1, 3), dtype=np.uint8)
        fine = random.integers(32, size=(height, width, 3), dtype=np.uint8)
        smooth = coarse.repeat(8, axis=0).repeat(8, axis=1)[:height, :width]
        yield smooth // 8 * 7 + fine


def image_folder(at: Path, classes: int, images: int, pixels: int) -> None:
    """Write a folder of JPEG files for each class, as torchvision's ImageFolder reads them."""
    from PIL import Image

    pictures = _pictures(pixels, pixels)
    for name in range(classes):
        place = at / f"class{name:03d}"
        place.mkdir(parents=True, exist_ok=True)
        for number, picture in enumerate(islice(pictures, images)):
            Image.fromarray(picture).save(place / f"{number:05d}.jpg", quality=85)


def image_pairs(at: Path) -> None:
    """Write images of two halves, as many as pix2pix's facades: 400 to train, 100 others."""
    from PIL import Image

    pictures = _pictures(512, 256)
    for part, count in (("train", 400), ("val", 100), ("test", 106)):
        (at / part).mkdir(parents=True, exist_ok=True)
        for number, picture in enumerate(islice(pictures, count)):
            Image.fromarray(picture).save(at / part / f"{number}.jpg", quality=85)


def boxes(at: Path) -> None:
    """Write images with labelled boxes in YOLO's text format, as many as COCO128's."""
    from PIL import Image

    random = _generator()
    for kind in ("images", "labels"):
        (at / kind / "train2017").mkdir(parents=True, exist_ok=True)
    for number, picture in enumerate(islice(_pictures(640, 480), 128)):
        Image.fromarray(picture).save(at / "images" / "train2017" / f"{number:012d}.jpg")
        lines = [
            f"{random.integers(80)} " + " ".join(f"{x:.4f}" for x in random.uniform(0.2, 0.4, 4))
            for _ in range(7)
        ]
        (at / "labels" / "train2017" / f"{number:012d}.txt").write_text("\n".join(lines) + "\n")


def views(at: Path) -> None:
    """Write views of a scene with their camera poses, in the format of NeRF's Blender scenes."""
    from PIL import Image

    random = _generator()
    pictures = _pictures(800, 800)
    for part, count in (("train", 20), ("val", 8), ("test", 16)):
        (at / part).mkdir(parents=True, exist_ok=True)
        frames = []
        for number, picture in enumerate(islice(pictures, count)):
            image = Image.fromarray(picture)
            image.putalpha(255)
            image.save(at / part / f"r_{number}.png", compress_level=1)
            turn, _ = np.linalg.qr(random.normal(size=(3, 3)))
            pose = np.eye(4)
            pose[:3, :3], pose[:3, 3] = turn, 4 * turn[:, 2]
            path = f"./{part}/r_{number}"
            frames.append({"file_path": path, "rotation": 0.0, "transform_matrix": pose.tolist()})
        scene = {"camera_angle_x": 0.6911112070083618, "frames": frames}
        (at / f"transforms_{part}.json").write_text(json.dumps(scene))


def point_clouds(at: Path) -> None:
    """Write point clouds in the layout of ShapeNet's parts: as many entries, of few files."""
    names = (
        "Airplane",
        "Bag",
        "Cap",
        "Car",
        "Chair",
        "Earphone",
        "Guitar",
        "Knife",
        "Lamp",
        "Laptop",
        "Motorbike",
        "Mug",
        "Pistol",
        "Rocket",
        "Skateboard",
        "Table",
    )
    random = _generator()
    codes = {name: f"{number:08d}" for number, name in enumerate(names)}
    files = []
    for code in codes.values():
        for kind in ("points", "points_label"):
            (at / code / kind).mkdir(parents=True, exist_ok=True)
        for number in range(8):
            points = random.normal(size=(2600, 3))
            text = "\n".join(f"{x:.5f} {y:.5f} {z:.5f}" for x, y, z in points)
            (at / code / "points" / f"{number}.pts").write_text(text)
            parts = "\n".join(map(str, random.integers(1, 4, size=2600)))
            (at / code / "points_label" / f"{number}.seg").write_text(parts)
            files.append(f"shape_data/{code}/{number}")
    (at / "synsetoffset2category.txt").write_text(
        "".join(f"{name}\t{code}\n" for name, code in codes.items())
    )
    (at / "train_test_split").mkdir(exist_ok=True)
    for part, count in (("train", 12_137), ("val", 1_870), ("test", 2_874)):
        listed = [files[index] for index in random.integers(len(files), size=count)]
        place = at / "train_test_split" / f"shuffled_{part}_file_list.json"
        place.write_text(json.dumps(listed))


# Text


def _vocabulary(size: int) -> list[str]:
    random = _generator()
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    return [
        "".join(random.choice(letters, size=random.integers(2, 9))) + str(number % 10)
        for number in range(size)
    ]


def _word_lines(lines: int, words: int, vocabulary: list[str]) -> Iterator[str]:
    """Lines of `words` words, frequent ones more often, as in any text (Zipf's law)."""
    random = _generator()
    shares = 1 / np.arange(1, len(vocabulary) + 1)
    shares /= shares.sum()
    choice = random.choice(len(vocabulary), size=(lines, words), p=shares)
    # Each word at least once, so that programs find the whole vocabulary.
    choice.flat[: min(choice.size, len(vocabulary))] = np.arange(min(choice.size, len(vocabulary)))
    return (" ".join(vocabulary[index] for index in line) for line in choice)


def names(at: Path) -> None:
    """Write one word a line, as many as makemore's names."""
    random = _generator()
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    lines = ("".join(random.choice(letters, size=random.integers(2, 15))) for _ in range(32_033))
    at.write_text("\n".join(lines) + "\n")


def characters(at: Path) -> None:
    """Write a text as long as tiny Shakespeare, of its characters."""
    random = _generator()
    signs = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz !$&',-.3:;?\n"
    at.write_text("".join(np.array(list(signs))[random.integers(len(signs), size=1_115_394)]))


def words(at: Path, words: int = 929_589) -> None:
    """Write train.txt, valid.txt and test.txt, by default as long as Penn Treebank's."""
    at.mkdir(parents=True, exist_ok=True)
    vocabulary = _vocabulary(10_000)
    for part, count in (("train", words), ("valid", 73_760), ("test", 82_430)):
        lines = _word_lines(count // 22, 22, vocabulary)
        (at / f"{part}.txt").write_text("\n".join(lines) + "\n")


def sentence_pairs(at: Path) -> None:
    """Write two sentences a line, with a tab between them."""
    at.parent.mkdir(parents=True, exist_ok=True)
    lines = list(_word_lines(200_000, 8, _vocabulary(10_000)))
    pairs = zip(lines[::2], lines[1::2], strict=True)
    at.write_text("".join(f"{first} \t {second}\n" for first, second in pairs))


def subwords(at: Path) -> None:
    """Write corpora of subwords, a sentence a line, and their vocabulary."""
    at.mkdir(parents=True, exist_ok=True)
    vocabulary = _vocabulary(32_000)
    special = ["<unk>", "<s>", "</s>", "<pad>"]
    (at / "vocab.txt").write_text("\n".join([*special, *vocabulary]))
    for part, lines in (("train", 200_000), ("test", 20_000)):
        text = "\n".join(_word_lines(lines, 40, vocabulary))
        (at / f"corpus.{part}.txt").write_text(text + "\n")


def token_shards(at: Path) -> None:
    """Write shards of tokens, 16 bits each, the first of which is for validation."""
    at.mkdir(parents=True, exist_ok=True)
    random = _generator()
    for shard in range(5):
        tokens = random.integers(32_000, size=2_000_000, dtype=np.uint16)
        (at / f"data{shard:02d}.bin").write_bytes(tokens.tobytes())


def enwik8(at: Path) -> None:
    """Write 95 million bytes of text, compressed."""
    at.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(_word_lines(10_000, 12, _vocabulary(10_000))).encode()
    whole = (text * (95_000_000 // len(text) + 1))[:95_000_000]
    with gzip.open(at, "wb", compresslevel=1) as file:
        file.write(whole)


# Graphs


def planetoid(at: Path) -> None:
    """Write Cora's raw files in the format that PyG's Planetoid reads, with random edges."""
    from scipy.sparse import csr_matrix

    at.mkdir(parents=True, exist_ok=True)
    random = _generator()
    nodes, tests = _CORA["nodes"], 1000
    features = (random.random((nodes, _CORA["words"])) < 0.013).astype(np.float32)
    labels = np.eye(_CORA["classes"], dtype=np.int32)[random.integers(7, size=nodes)]
    graph: dict[int, list[int]] = {node: [] for node in range(nodes)}
    for first, second in random.integers(nodes, size=(_CORA["edges"], 2)).tolist():
        graph[first].append(second)
        graph[second].append(first)
    rest = nodes - tests
    parts = {
        "x": csr_matrix(features[:140]),
        "y": labels[:140],
        "allx": csr_matrix(features[:rest]),
        "ally": labels[:rest],
        "tx": csr_matrix(features[rest:]),
        "ty": labels[rest:],
        "graph": graph,
    }
    for name, part in parts.items():
        (at / f"ind.cora.{name}").write_bytes(pickle.dumps(part))
    (at / "ind.cora.test.index").write_text("\n".join(map(str, range(rest, nodes))) + "\n")


def citations(at: Path) -> None:
    """Write Cora as lines of text: a node's words and class; an edge's two nodes."""
    at.mkdir(parents=True, exist_ok=True)
    random = _generator()
    nodes = _CORA["nodes"]
    present = (random.random((nodes, _CORA["words"])) < 0.013).astype(int)
    classes = random.integers(_CORA["classes"], size=nodes)
    lines = (
        f"{node}\t" + "\t".join(map(str, present[node])) + f"\tclass{classes[node]}"
        for node in range(nodes)
    )
    (at / "cora.content").write_text("\n".join(lines) + "\n")
    edges = random.integers(nodes, size=(_CORA["edges"], 2))
    (at / "cora.cites").write_text("\n".join(f"{a}\t{b}" for a, b in edges) + "\n")


def graph_collection(at: Path) -> None:
    """Write small labelled graphs as TU Dortmund's text files, as many as MUTAG's."""
    at.mkdir(parents=True, exist_ok=True)
    random = _generator()
    edges, owners, classes = [], [], []
    for graph in range(188):
        first, size = len(owners) + 1, int(random.integers(12, 25))
        pairs = random.integers(size, size=(size, 2)) + first
        edges += [f"{a}, {b}" for x, y in pairs.tolist() for a, b in ((x, y), (y, x))]
        owners += [graph + 1] * size
        classes.append(int(random.choice((-1, 1))))
    columns = {
        "A": edges,
        "graph_indicator": owners,
        "graph_labels": classes,
        "node_labels": random.integers(7, size=len(owners)).tolist(),
        "edge_labels": random.integers(4, size=len(edges)).tolist(),
    }
    for name, column in columns.items():
        (at / f"MUTAG_{name}.txt").write_text("\n".join(map(str, column)) + "\n")


def labelled_graphs(at: Path) -> None:
    """Write PPI's raw files: 24 graphs of about 2,250 nodes, with features and 121 labels each."""
    at.mkdir(parents=True, exist_ok=True)
    random = _generator()
    for part, graphs, begin in (("train", 20, 1), ("valid", 2, 21), ("test", 2, 23)):
        size = 2_250
        nodes = graphs * size
        ids = np.repeat(np.arange(begin, begin + graphs), size)
        ends = random.integers(size, size=(graphs, size * 14, 2))
        ends = (ends + np.arange(graphs)[:, None, None] * size).reshape(-1, 2).tolist()
        links = [{"source": first, "target": second} for first, second in ends]
        graph = {
            "directed": False,
            "multigraph": False,
            "graph": {},
            "nodes": [{"id": node} for node in range(nodes)],
            "links": links,
            "edges": links,  # the two names that networkx has had for it
        }
        (at / f"{part}_graph.json").write_text(json.dumps(graph))
        np.save(at / f"{part}_feats.npy", random.normal(size=(nodes, 50)))
        np.save(at / f"{part}_labels.npy", random.integers(2, size=(nodes, 121)))
        np.save(at / f"{part}_graph_id.npy", ids)


def bodies(at: Path) -> None:
    """Write paths of five charged bodies, as EGNN's generator names and shapes them."""
    at.mkdir(parents=True, exist_ok=True)
    random = _generator()
    for part, count in (("train", 3_000), ("valid", 2_000), ("test", 2_000)):
        name = f"{part}_charged5_initvel1small.npy"
        charges = random.choice((-1.0, 1.0), size=(count, 5, 1))
        np.save(at / f"loc_{name}", random.normal(size=(count, 49, 3, 5)))
        np.save(at / f"vel_{name}", random.normal(size=(count, 49, 3, 5)))
        np.save(at / f"edges_{name}", charges @ charges.transpose(0, 2, 1))
        np.save(at / f"charges_{name}", charges)


# Sound


def mixtures(at: Path) -> None:
    """Write mixed voices and each alone, and JSON lists of them: as many as wsj0-2mix trains on."""
    import wave

    random = _generator()
    samples = 8000 * 5
    (at / "wav").mkdir(parents=True, exist_ok=True)
    for number in range(64):
        voices = random.integers(-8000, 8000, size=(2, samples), dtype=np.int16)
        for name, sound in (("s1", voices[0]), ("s2", voices[1]), ("mix", voices.sum(axis=0))):
            with wave.open(str(at / "wav" / f"{name}{number}.wav"), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(8000)
                file.writeframes(sound.astype(np.int16).tobytes())
    for part, count in (("tr", 20_000), ("cv", 200)):
        (at / part).mkdir(exist_ok=True)
        for name in ("mix", "s1", "s2"):
            listed = [[f"../data/wav/{name}{n % 64}.wav", samples] for n in range(count)]
            (at / part / f"{name}.json").write_text(json.dumps(listed))


MAKERS: dict[str, Callable[..., None]] = {
    maker.__name__: maker
    for maker in (
        bodies,
        boxes,
        characters,
        citations,
        enwik8,
        folder,
        graph_collection,
        image_folder,
        image_pairs,
        labelled_graphs,
        mixtures,
        mnist,
        names,
        planetoid,
        point_clouds,
        sentence_pairs,
        subwords,
        token_shards,
        views,
        words,
    )
}
