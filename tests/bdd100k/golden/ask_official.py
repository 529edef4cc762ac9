"""Let the official BDD100K toolkit convert and evaluate; run by ``make.py`` in its environment."""

import json
import sys
from importlib.metadata import version
from pathlib import Path

from bdd100k.common.utils import load_bdd100k_config
from bdd100k.label.to_scalabel import bdd100k_to_scalabel
from scalabel.eval.detect import evaluate_det
from scalabel.label.io import load
from scalabel.label.to_coco import scalabel2coco_detection

folder = Path(sys.argv[1])
config = load_bdd100k_config("det")


def frames(name):
    return bdd100k_to_scalabel(load(str(folder / name)).frames, config)


answers = {
    "versions": {name: version(name) for name in ("bdd100k", "scalabel", "pycocotools")},
    "coco": {},
}
for generation in ("2018", "2020"):
    document = scalabel2coco_detection(frames(f"labels_{generation}.json"), config.scalabel)
    answers["coco"][generation] = {
        "categories": [[row["id"], row["name"]] for row in document["categories"]],
        "images": [[row["id"], row["file_name"]] for row in document["images"]],
        "annotations": [
            [row["id"], row["image_id"], row["category_id"], row["iscrowd"], *row["bbox"]]
            for row in document["annotations"]
        ],
    }
result = evaluate_det(
    frames("labels_2020.json"), frames("predictions.json"), config.scalabel, nproc=1
)
scores = json.loads(result.json())
answers["evaluation"] = {
    metric: {name: value for part in scores[metric] for name, value in part.items()}
    for metric in ("AP", "AP50", "AP75", "APs", "APm", "APl",
                   "AR1", "AR10", "AR100", "ARs", "ARm", "ARl")
}  # fmt: skip
text = json.dumps(answers, separators=(",", ":")).replace("NaN", "null")
(folder / "official.json").write_text(text + "\n", encoding="utf-8")
