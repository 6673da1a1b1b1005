"""A residual network in miniature, for 8x8 grey images."""

from torch import Tensor, nn
from torch.nn import functional

from quietnn.tasks.models.thin_resnet import ThinBlock


class DigitsResNet(nn.Module):
    """A stem, two residual blocks of 16 and 32 channels, and a linear head; BatchNorm throughout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = ThinBlock(16, 16, stride=1)
        self.layer2 = ThinBlock(16, 32, stride=2)
        self.fc = nn.Linear(32, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (batch, 1, 8, 8) to logits (batch, 10)."""
        x = functional.relu(self.bn1(self.conv1(images)))
        x = self.layer2(self.layer1(x))
        logits: Tensor = self.fc(x.mean(dim=(2, 3)))
        return logits
