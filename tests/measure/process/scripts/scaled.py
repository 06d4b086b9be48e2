"""As Hugging Face's Trainer steps: autocast, a scaler that skips steps, a scheduler, clipping."""

import torch
from counted import count

network = torch.nn.Linear(4, 4)
optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.999**step)
scaler = torch.amp.GradScaler("cpu")
step = 0
while True:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = network(torch.ones(2, 4)).sum()
    if step % 3 == 2:
        loss = loss * float("inf")  # no finite gradient: the scaler skips this step
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
    optimizer.zero_grad(set_to_none=True)
    step += 1
    count()
