"""Max-margin objectives: hinge losses, their cutting planes, and softmax-margin."""
