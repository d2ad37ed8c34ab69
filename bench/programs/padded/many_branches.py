import torch


def reduce_loss(loss, reduction="mean", weights=None, mask=None, dim=None, keepdim=False):
    """Reduce a loss as the caller asks."""
    if loss.dim() == 0:
        return loss
    if mask is not None:
        if mask.dtype != torch.bool:
            mask = mask > 0
        if mask.shape != loss.shape:
            mask = mask.expand_as(loss)
        loss = loss.masked_fill(~mask, 0.0)
    if weights is not None:
        if isinstance(weights, (list, tuple)):
            weights = torch.tensor(weights)
        elif not torch.is_tensor(weights):
            raise TypeError("weights")
        loss = loss * weights
    if reduction == "none":
        return loss
    elif reduction == "sum":
        return loss.sum() if dim is None else loss.sum(dim, keepdim=keepdim)
    elif reduction == "mean":
        if mask is not None:
            count = mask.sum()
            if count == 0:
                return loss.sum() * 0
            return loss.sum() / count
        return loss.mean() if dim is None else loss.mean(dim, keepdim=keepdim)
    elif reduction == "max":
        return loss.max(dim, keepdim=keepdim).values
    raise ValueError(reduction)


cases = [
    dict(reduction="sum"),
    dict(reduction="mean", mask=torch.tensor([1, 0, 1])),
    dict(reduction="max", dim=0),
    dict(reduction="mean", weights=[0.5, 1.0, 2.0], dim=1),
    dict(reduction="mean", weights=[0.5, 1.0], keepdim=True),
]
for number, options in enumerate(cases):
    value = reduce_loss(torch.rand(4, 3), **options)
    print(number, tuple(value.shape))
